"""The pin map: the lines an agent needs around its anchors, within the tokens it asked for.

Rules:
- Laws first, by id, at most a fifth of the budget; then the anchors; then rows by rank. A row that does not fit is passed
  over and the next is tried. Only an anchor's own values are ever cut, at a mark that no write accepts.
- Rank: steps from the nearest anchor, each worth more behind a hub; newer writes before older ones. Nothing volatile: the
  same graph gives the same text, byte for byte.
- Work is bounded before: by fan-out, and by a number of rows that follows from the budget. What was left out is in the
  footer, with a "+" where not even its number is known.
- The text, footer included, is never estimated over the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import log2

import msgspec

from pinfold import limits
from pinfold.dialect.delta import format_delta
from pinfold.dialect.format import format_cut, format_document, format_footer, format_value
from pinfold.entry import blake2b
from pinfold.errors import Refused
from pinfold.recall.tokens import line_tokens
from pinfold.recall.walk import check_anchor, check_reading, is_clipped, steps
from pinfold.state.graph import Edge, Graph, Law, Node, line_of, shown_fields
from pinfold.state.schema import Schema

Counter = Callable[[str], float]
"""Tokens that a line and its newline add to a text."""

LAW_SHARE = 0.2
NOTE_SHARE = 0.2
LEAST_LINE_TOKENS = 8
"""No present line is shorter: with less than this left nothing more is tried."""
SMALL_BUDGET_TOKENS = 128
"""Below this the footer leaves etag and cursor to the structured answer: they would cost the rows."""
RIM_TOKENS = 16
"""Tokens of a short node with its edge: a budget shows no more rim nodes than it holds of these."""
MISSES = 48
"""Rows in a row that did not fit before the rest is not tried."""
PAGES_MAX = 1_000
"""Each page is found by going through those before it."""
_HUB = 1 / 24
_RECENT = 0.4
_CROSS = 0.3


class PinMap(msgspec.Struct, frozen=True):
    """The text and what it holds. total counts what is within reach; more: there is still more than that.

    cursor: "" when nothing is left. delta: the text holds only what changed since the etag asked with. full_tokens: what the whole
    graph would be as text, estimated from the rows of this map.
    """

    text: str
    etag: str
    tokens: int
    laws: tuple[int, int]
    nodes: tuple[int, int]
    edges: tuple[int, int]
    more: bool
    cursor: str
    ids: tuple[str, ...]
    delta: bool
    full_tokens: int


class _Asked(msgspec.Struct, frozen=True):
    """The arguments that decide what a pin map holds."""

    anchors: tuple[str, ...]
    depth: int
    budget_tokens: int
    max_rows: int
    relations: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    direction: str
    counter: str

    def digest(self) -> str:
        try:
            return blake2b(msgspec.msgpack.encode(self), digest_size=3).hexdigest()
        except UnicodeEncodeError as error:
            raise Refused("a relation, kind or id with half of a surrogate pair is none", code="bad_argument", hint="valid Unicode") from error


def etag_seq(etag: str) -> int | None:
    """Return the seq whose graph an etag was made of, None where it is no etag."""
    parts = etag.split(".")
    return int(parts[0]) if len(parts) == 3 and parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) < 19 else None


def pin_map(
    graph: Graph,
    anchors: Sequence[str],
    *,
    now_ms: int,
    schema: Schema | None = None,
    depth: int = limits.WALK_DEPTH,
    budget_tokens: int = limits.BUDGET_TOKENS,
    max_rows: int | None = None,
    relations: Collection[str] | None = None,
    kinds: Collection[str] | None = None,
    direction: str = "both",
    cursor: str = "",
    since: str = "",
    before: tuple[Graph, Schema | None] | None = None,
    count: Counter = line_tokens,
    counter: str = "est",
    without: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> PinMap:
    """Return the pin map of the anchors.

    without: rows that are neither shown nor passed through unless they are anchors. notes: comment lines about rows, told
    where their row is, at most a fifth of the budget; None: no row here ever has one.

    anchors: ids of nodes, edges or laws. max_rows: nodes and edges at most. cursor: of the page before, on an unchanged graph.
    since, before: an etag, and graph and schema as of etag_seq(since); without them, or where they do not fit, the full map,
    its footer saying `full`. count, counter: what counts the tokens, and its name in the footer.
    Raises Refused: not_found (near), budget_too_small, stale_cursor, bad_argument.
    """
    depth = check_reading(direction, depth, max_rows)
    if budget_tokens < limits.BUDGET_TOKENS_MIN:
        hint = f"at least {limits.BUDGET_TOKENS_MIN}"
        raise Refused(f"budget_tokens={budget_tokens} holds no row", code="budget_too_small", hint=hint, budget_tokens=budget_tokens)
    asked = _Asked(
        tuple(dict.fromkeys(anchors)),
        depth,
        budget_tokens,
        limits.WALK_ROWS_MAX if max_rows is None else min(max_rows, limits.WALK_ROWS_MAX),
        None if relations is None else tuple(sorted(set(relations))),
        None if kinds is None else tuple(sorted(set(kinds))),
        direction,
        counter,
    )
    page = _page_of(cursor, asked, _seq(graph, schema))
    now = _Map(graph, schema, asked, now_ms, count, page, without)
    now.take_notes(notes)
    now.fill()
    if not since:
        return now.answer("")
    delta = None
    if before is not None and page == 0:
        delta = _delta(now, since, _Map(before[0], before[1], asked, now_ms, count, 0, without))
    return now.answer("full") if delta is None else delta


def _seq(graph: Graph, schema: Schema | None) -> int:
    return max(graph.seq, schema.seq if schema is not None else 0)


def _page_of(cursor: str, asked: _Asked, seq: int) -> int:
    if not cursor:
        return 0
    parts = cursor.split(".")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 6 or int(parts[2]) > PAGES_MAX or parts[1] != asked.digest():
        raise Refused("the cursor is not of this question", code="bad_argument", hint="ask with the arguments that gave the cursor")
    if parts[0] != str(seq):
        raise Refused("the graph changed since the cursor was given", code="stale_cursor", hint="begin again without a cursor")
    return int(parts[2])


def _delta(now: _Map, since: str, old: _Map) -> PinMap | None:
    """Return what changed since an etag, None where the map it was made of cannot be had or the change says more than the map."""
    parts = since.split(".")
    if etag_seq(since) != _seq(old.graph, old.schema) or parts[1] != now.asked.digest():
        return None
    try:
        old.fill()
    except Refused:
        return None
    if old.shown_digest() != parts[2]:
        return None
    was = old.lines()
    new = now.lines()
    changed = [line for id, line in new.items() if was.get(id) != line]
    gone = [id for id in was if id not in new]
    return now.answer("", format_delta(changed, gone))


class _Map:
    """One page of a pin map in the making."""

    def __init__(self, graph: Graph, schema: Schema | None, asked: _Asked, now_ms: int, count: Counter, page: int, without: Collection[str] = ()) -> None:
        self.without = without
        self.notes: dict[str, str] = {}
        self.notes_left = 0
        self.may_note = False
        self.graph = graph
        self.schema = schema
        self.asked = asked
        self.now_ms = now_ms
        self.count = count
        self.page = page
        self.is_small = asked.budget_tokens < SMALL_BUDGET_TOKENS
        self.laws: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        self.edges: dict[str, str] = {}
        self.used = 0.0
        self.total_nodes = 0
        self.total_edges = 0
        self.more = False
        self.more_edges = False
        self.left_out = 0
        self.costs: dict[str, float] = {}

    def lines(self) -> dict[str, str]:
        return {**self.laws, **self.nodes, **self.edges}

    def shown_digest(self) -> str:
        return blake2b("\n".join([*self.laws, *self.nodes, *self.edges]).encode(), digest_size=3).hexdigest()

    def take_notes(self, notes: Mapping[str, str] | None) -> None:
        if notes is None:
            return
        self.may_note = True
        left = self.asked.budget_tokens * NOTE_SHARE
        for id, note in notes.items():
            left -= self._cost(note)
            if left < 0:
                self.notes_left = len(notes) - len(self.notes)
                break
            self.notes[id] = note

    def told_notes(self) -> list[str]:
        shown = self.lines()
        told = [note for id, note in self.notes.items() if id in shown]
        return [*told, f"# stale: {self.notes_left} more"] if self.notes_left else told

    def fill(self) -> None:
        """Fill the page asked for, as those before it were filled: what each showed is not shown again.

        The bounds of the ranking double with the pages, so it is made anew a few times only.
        """
        rows = [check_anchor(self.graph, id, self.now_ms) for id in self.asked.anchors]
        done: set[str] = set()
        scale = 0
        for page in range(self.page + 1):
            self.laws, self.nodes, self.edges, self.used, self.left_out = {}, {}, {}, 0.0, 0
            if scale <= page:
                scale = 1 << page.bit_length()
                ahead = self._ranked(rows, scale)[::-1]
            self.room = self._room(page)
            self._fill_laws(rows, done)
            if page == 0:
                self._fill_anchors(rows, done)
            self._fill_items(ahead, done)
            done.update(self.laws, self.nodes, self.edges)
            if not (self.laws or self.nodes or self.edges):
                break  # and so is every page behind it
        left = (id for id, law in self.graph.laws.items() if not self.graph.is_hidden(law, self.now_ms) and id not in self.without)
        self.remaining = any(row.id not in done for _, _, row, _ in ahead) or any(id not in done for id in left)

    def _room(self, page: int) -> float:
        """Return the tokens that rows of a page may take: the footer and the section names are paid for first."""
        budget = self.asked.budget_tokens
        shown = min(self.total_nodes, budget), min(self.total_edges, budget)
        room = budget - self.count(self._footer("full", shown, budget, 99_999, page, True)) - 1.0
        if page < self.page:
            return room - (budget * NOTE_SHARE if self.may_note else 0)  # what was told there is not known: rather a row twice than never
        return room - sum(map(self._cost, self.notes.values())) - (self.count("# stale: 9999 more") if self.notes_left else 0)

    # --- which rows there are -------------------------------------------------------------------------------------

    def _ranked(self, rows: list[Node | Edge | Law], scale: int) -> list[tuple[float, int, Node | Edge, Edge | None]]:
        """Return (cost, born, row, the edge that led to it) of what is in reach, cheapest first; anchors left out.

        Breadth first, so a node is met on a shortest way. O(budget * scale): the number of nodes met is bounded by it.
        """
        graph, asked, now_ms, without = self.graph, self.asked, self.now_ms, self.without
        relations = None if asked.relations is None else frozenset(asked.relations)
        kinds = None if asked.kinds is None else frozenset(asked.kinds)
        most = (64 + min(asked.budget_tokens // LEAST_LINE_TOKENS, asked.max_rows)) * scale
        self.more = False
        newest = max(graph.seq, 1)
        cost: dict[str, float] = {}
        shown: dict[str, None] = {}
        anchor_edges = [row for row in rows if isinstance(row, Edge)]
        for row in rows:
            if isinstance(row, Node):
                cost[row.id] = 0.0
                shown[row.id] = None
        for edge in anchor_edges:
            for end in (edge.src, edge.dst):
                if end not in cost:
                    cost[end] = 0.1
        items: list[tuple[float, int, Node | Edge, Edge | None]] = []
        for id in cost:
            if id not in shown and (node := graph.nodes.get(id)) is not None and (kinds is None or node.kind in kinds):
                items.append((cost[id], node.born, node, None))
                shown[id] = None
        level = list(cost)
        taken: dict[str, Edge] = {edge.id: edge for edge in anchor_edges}
        cross: dict[str, Edge] = {}
        for _ in range(asked.depth):
            ahead: list[str] = []
            for id in level:
                if is_clipped(graph, id, asked.direction):
                    self.more = True
                base = cost[id] + 1.0 + log2(1 + graph.degree(id)) * _HUB
                for edge, other in steps(graph, id, asked.direction, relations, now_ms):
                    if edge.id in taken or edge.id in without or other in without:
                        continue
                    if other in cost:
                        cross[edge.id] = edge
                        continue
                    if len(cost) >= most:
                        self.more = True
                        break
                    node = graph.nodes.get(other)
                    if node is None:
                        continue
                    taken[edge.id] = edge
                    price = base + _RECENT * (1 - max(node.mark[0], edge.mark[0]) / newest)
                    cost[other] = price
                    ahead.append(other)
                    if kinds is None or node.kind in kinds:
                        shown[other] = None
                        items.append((price, node.born, node, edge))
            ahead.sort(key=lambda id: (cost[id], id))
            level = ahead
            if not level:
                break
        # Edges between nodes on the rim: nobody went along them, but both their ends may be shown.
        # Only for as many rim nodes as could be shown.
        rim = max(16, asked.budget_tokens // RIM_TOKENS) * scale
        self.more_edges = self.more or len(level) > rim
        for id in level[:rim]:
            if graph.degree(id) <= limits.WALK_FANOUT:
                for edge, other in steps(graph, id, asked.direction, relations, now_ms):
                    if other in cost and edge.id not in taken and edge.id not in without:
                        cross[edge.id] = edge
        pairs = 0
        for edge in cross.values():
            if edge.id not in taken and edge.src in shown and edge.dst in shown:
                pairs += 1
                price = max(cost[edge.src], cost[edge.dst]) + _CROSS
                items.append((price, edge.born, edge, None))
        led = sum(1 for _, _, _, edge in items if edge is not None and edge.src in shown and edge.dst in shown)
        items.sort(key=lambda item: (item[0], isinstance(item[2], Edge), -item[2].mark[0], item[1]))
        self.total_nodes = len(shown)
        self.total_edges = len(anchor_edges) + led + pairs
        self.shown = shown
        return items

    # --- which of them fit ------------------------------------------------------------------------------------------

    def _cost(self, line: str) -> float:
        cost = self.costs.get(line)
        if cost is None:
            cost = self.costs[line] = self.count(line)
        return cost

    def _add(self, where: dict[str, str], id: str, line: str, limit: float) -> bool:
        cost = self._cost(line)
        if not where:
            cost += self._cost("## Nodes")
        if self.used + cost > limit:
            self.left_out += int(cost)
            return False
        self.used += cost
        where[id] = line
        return True

    def _fill_laws(self, rows: list[Node | Edge | Law], done: set[str]) -> None:
        asked_for = {row.id for row in rows if isinstance(row, Law)}
        for id in sorted(self.graph.laws.keys() - done):
            law = self.graph.laws[id]
            if not self.graph.is_hidden(law, self.now_ms) and (id not in self.without or id in asked_for):
                limit = self.room if id in asked_for else self.room * LAW_SHARE
                self._add(self.laws, id, line_of(law), limit)

    def _fill_anchors(self, rows: list[Node | Edge | Law], done: set[str]) -> None:
        left = len(rows)
        for row in rows:
            if not isinstance(row, Law):
                where = self.nodes if isinstance(row, Node) else self.edges
                if len(self.nodes) + len(self.edges) < self.asked.max_rows:
                    share = self.used + (self.room - self.used) / left
                    if not self._add(where, row.id, line_of(row, self.schema), share):
                        cut = self._cut(row, share - self.used - (0 if where else self.count("## Nodes")))
                        if cut:
                            self._add(where, row.id, cut, share)
            left -= 1
        done.update(row.id for row in rows)

    def _cut(self, row: Node | Edge, room: float) -> str:
        """Return the row's line with its longest values cut so that it fits, "" where nothing does."""
        if isinstance(row, Node):
            pairs, head = shown_fields(self.schema, row.kind, row.keys, row.values), f"{row.kind} [{row.id}]"
        else:
            pairs, head = list(zip(row.keys, row.values, strict=True)), f"{row.id} [{row.src}] --({row.rel})--> [{row.dst}]"
        low, high = 0, max((len(value) for _, value in pairs), default=0)
        best = ""
        while low <= high:
            kept = (low + high) // 2
            shown = [f"{key}={format_value(value) if len(value) <= kept else format_cut(value, kept)}" for key, value in pairs]
            line = " ; ".join([head, *shown])
            if self.count(line) <= room:
                best, low = line, kept + 1
            else:
                high = kept - 1
        return best or (head if self.count(head) <= room else "")

    def _fill_items(self, ahead: list[tuple[float, int, Node | Edge, Edge | None]], done: set[str]) -> None:
        """Take rows from the end of ahead, which is the next in rank, as long as there is room; what did not fit stays."""
        asked = self.asked
        missed = []
        misses = 0
        while ahead and self.room - self.used >= LEAST_LINE_TOKENS and misses < MISSES and len(self.nodes) + len(self.edges) < asked.max_rows:
            item = ahead.pop()
            _, _, row, led = item
            if row.id in done:
                continue
            if isinstance(row, Edge):
                fits = self._add(self.edges, row.id, line_of(row), self.room)
            else:
                before = self.used
                fits = self._add(self.nodes, row.id, line_of(row, self.schema), self.room)
                # A node without the edge that led to it says nothing about the anchor: both or neither.
                with_edge = fits and led is not None and led.src in self.shown and led.dst in self.shown
                if led is not None and with_edge and not self._add_edge(led):
                    del self.nodes[row.id]
                    self.used = before
                    fits = False
            if fits:
                misses = 0
            else:
                misses += 1
                missed.append(item)
        ahead.extend(reversed(missed))

    def _add_edge(self, edge: Edge) -> bool:
        return len(self.nodes) + len(self.edges) < self.asked.max_rows and self._add(self.edges, edge.id, line_of(edge), self.room)

    # --- what is said about it --------------------------------------------------------------------------------------

    def _footer(self, word: str, shown: tuple[int, int], used: int, left_out: int, page: int, cursor: bool) -> str:
        plus = "+" if self.more else ""
        seq = _seq(self.graph, self.schema)
        digest = self.asked.digest()
        text = format_footer(
            seq=seq,
            laws=(len(self.laws), len(self.graph.laws)) if page == 0 else None,
            tokens=(used, self.asked.budget_tokens),
            counter=self.asked.counter,
            omitted_tokens=0 if self.is_small else left_out,
            more={**({} if self.is_small else {"etag": f"{seq}.{digest}.{self.shown_digest()}"}), **({word: ""} if word else {})},
            cursor=f"{seq}.{digest}.{page + 1}" if cursor and not self.is_small else "",
        )
        counts = f" nodes={shown[0]}/{self.total_nodes}{plus} edges={shown[1]}/{self.total_edges}{'+' if self.more_edges else ''} tokens="
        return text.replace(" tokens=", counts, 1)

    def answer(self, word: str, delta: list[str] | None = None) -> PinMap:
        lines = format_document(list(self.laws.values()), list(self.nodes.values()), list(self.edges.values())) if delta is None else delta
        lines = [*lines, *self.told_notes()]
        total_laws = sum(1 for law in self.graph.laws.values() if not self.graph.is_hidden(law, self.now_ms))
        shown = (len(self.nodes), len(self.edges))
        cursor = (
            f"{_seq(self.graph, self.schema)}.{self.asked.digest()}.{self.page + 1}"
            if self.remaining and self.page < PAGES_MAX and (self.laws or self.nodes or self.edges)
            else ""
        )
        used = sum(map(self._cost, lines))
        footer = self._footer(word, shown, self.asked.budget_tokens, self.left_out, self.page, bool(cursor))
        tokens = -int(-(used + self.count(footer)) // 1)
        if delta is not None and tokens > self.asked.budget_tokens:
            return self.answer("full")
        footer = self._footer(word, shown, tokens, self.left_out, self.page, bool(cursor))
        return PinMap(
            "\n".join([*lines, footer]),
            f"{_seq(self.graph, self.schema)}.{self.asked.digest()}.{self.shown_digest()}",
            tokens,
            (len(self.laws), total_laws),
            (shown[0], self.total_nodes),
            (shown[1], self.total_edges),
            self.more or self.more_edges,
            cursor,
            (*self.laws, *self.nodes, *self.edges),
            delta is not None,
            self._full_tokens(tokens),
        )

    def _full_tokens(self, tokens: int) -> int:
        """Return what all rows would cost if they were like those of this map."""
        shown = len(self.laws) + len(self.nodes) + len(self.edges)
        rows = len(self.graph.laws) + len(self.graph.nodes) + len(self.graph.edges)
        return max(tokens, round(self.used / shown * rows)) if shown else tokens
