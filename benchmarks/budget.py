"""What a pin map under a budget still holds: 200 questions over three sessions of real text, and a task of twenty turns.

A question is an anchor (or two) and the rows that answer it. Which rows those are follows from the meaning of the
question alone: a form such as "what does this function call, and where is that" names ways along relations, and every
row on them is needed. How a pin map ranks has no part in it. A row counts only when its whole line is there.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Table, WrongAnswer, must_hold
from benchmarks.peers import Peer
from pinfold import Memory, Session
from pinfold.recall.tokens import o200k_counter

TEXTS = Path(__file__).resolve().parent / "texts"
BUDGETS = (400, 800)
QUESTIONS = {"coding": 80, "dossier": 60, "story": 60}

Way = tuple[str, ...]
"""Relations to follow, one after the other: "calls" along the arrow, "<calls" against it."""


@dataclass(frozen=True)
class Form:
    """A sort of question: asked of nodes of a kind; every row on its ways is needed. None: what joins two anchors."""

    text: str
    kind: str
    ways: tuple[Way, ...]


FORMS: dict[str, tuple[Form, ...]] = {
    "coding": (
        Form("What does {} call, and what does that promise?", "SYM", (("calls",),)),
        Form("Who calls {}, and in which file?", "SYM", (("<calls", "<contains"),)),
        Form("Where is {}, and what else does its file say of itself?", "SYM", (("<contains",),)),
        Form("Which task touches {}, and who has it?", "SYM", (("<touches", "assigned_to"),)),
        Form("What was found out about {}?", "SYM", (("<about",),)),
        Form("What does {} touch, and what must be done before it?", "TSK", (("touches",), ("after",))),
        Form("What is known of what {} touches?", "TSK", (("touches", "<about"),)),
        Form("What does {} work on, and why?", "WHO", (("<assigned_to",), ("<assigned_to", "after"))),
        Form("Which files does {} import?", "FILE", (("imports",),)),
        Form("Which claims rest on {}, and of what are they?", "CLM", (("<rests_on",), ("about",))),
        Form("What does {} inherit from, and where is that?", "SYM", (("inherits", "<contains"),)),
    ),
    "dossier": (
        Form("What supports or refutes {}, and who wrote it?", "CLM", (("<supports", "<wrote"), ("<refutes", "<wrote"))),
        Form("Who states {}, and for whom do they work?", "CLM", (("<states", "works_for"),)),
        Form("What does {} rest on?", "CLM", (("rests_on",), ("<rests_on",))),
        Form("For whom does {} work, and what did they write?", "PER", (("works_for",), ("wrote",))),
        Form("What does {} state, and what did they see?", "PER", (("states",), ("saw",))),
        Form("Who wrote or obtained {}, and what does it bear on?", "DOC", (("<wrote",), ("<obtained",), ("supports",), ("refutes",))),
        Form("What does {} concern, and what rests on it?", "DOC", (("concerns",), ("<rests_on",))),
        Form("Who signed {}?", "DOC", (("<signed",),)),
        Form("What led to {}, and what came of it?", "EVT", (("<led_to",), ("led_to",), ("concerns",))),
        Form("Who owns {}, what does it feed, what runs on it?", "DEV", (("<owns",), ("feeds",), ("<runs_on",))),
        Form("Who made {}, and what tests it?", "DEV", (("<made",), ("<concerns",))),
        Form("What does {} ask about, and who follows it up?", "QST", (("asks_about",), ("assigned_to",))),
        Form("Who works for {}, and what is theirs?", "ORG", (("<works_for",), ("owns",), ("made",))),
    ),
    "story": (
        Form("Where does {} live, and what do they carry?", "PER", (("lives_in",), ("carries",))),
        Form("What does {} want, and who stands in the way?", "PER", (("wants", "<blocks"),)),
        Form("Which secrets does {} know, and who else knows them?", "PER", (("knows", "<knows"),)),
        Form("What did {} see, and where?", "PER", (("saw", "happened_at"),)),
        Form("Whom does {} trust or owe, and who are their kin?", "PER", (("trusts",), ("owes",), ("kin_of",), ("<kin_of",))),
        Form("Who has {}, and who made it?", "ITM", (("<carries",), ("<made",))),
        Form("What does {} hint at?", "ITM", (("hints_at",),)),
        Form("Where was {}, who saw it, what led to it, and what came of it?", "EVT", (("happened_at",), ("<saw",), ("<led_to",), ("led_to",))),
        Form("Who lives in {}, and what do they carry?", "PLC", (("<lives_in", "carries"),)),
        Form("What happened at {}?", "PLC", (("<happened_at",),)),
        Form("Who knows {}, and what hints at it?", "SEC", (("<knows",), ("<hints_at",))),
        Form("Who wants {}, who blocks it?", "GOL", (("<wants",), ("<blocks",))),
    ),
}
JOINED = "What joins {} and {}?"
"""Asked of two nodes two or three steps apart with one shortest way between them; needed is that way."""


@dataclass
class Question:
    """anchors: what the asker names. needed: ids of the rows that answer."""

    text: str
    anchors: tuple[str, ...]
    needed: frozenset[str]


@dataclass
class Text:
    """One scripted session: its documents of lines, and its rows as read from them."""

    name: str
    documents: list[str]
    kinds: dict[str, str] = field(default_factory=dict)
    edges: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in "\n".join(self.documents).split("\n"):
            if m := re.match(r"\+ ([A-Z]+) \[(\w+)\]", line):
                self.kinds[m[2]] = m[1]
            elif m := re.match(r"\+ \[(\w+)\] --\((\w+)\)--> \[(\w+)\]", line):
                self.edges[f"E{len(self.edges) + 1}"] = (m[1], m[2], m[3])

    def steps(self, id: str, relation: str) -> Iterator[tuple[str, str]]:
        """Yield (edge, other end) along a relation, "<" against it."""
        for edge, (src, rel, dst) in self.edges.items():
            if relation == rel and src == id:
                yield edge, dst
            elif relation == f"<{rel}" and dst == id:
                yield edge, src

    def on_ways(self, id: str, ways: Iterable[Way]) -> frozenset[str]:
        """Return every row on the ways from a node, itself included; nothing where no way leads to its end."""
        found: set[str] = set()
        for way in ways:
            ends = {id}
            rows: set[str] = set()
            for relation in way:
                taken = [step for end in sorted(ends) for step in self.steps(end, relation)]
                rows |= {row for step in taken for row in step}
                ends = {other for _, other in taken}
            found |= rows if ends else set()
        return frozenset({id, *found}) if found else frozenset()

    def between(self, a: str, b: str) -> frozenset[str]:
        """Return the rows of the one shortest way between two nodes of two or three steps, nothing where there is another."""
        around: dict[str, list[tuple[str, str]]] = {}
        for edge, (src, _, dst) in self.edges.items():
            around.setdefault(src, []).append((edge, dst))
            around.setdefault(dst, []).append((edge, src))
        ways: dict[str, list[tuple[str, ...]]] = {a: [(a,)]}
        level = deque([a])
        for _ in range(3):
            ahead: dict[str, list[tuple[str, ...]]] = {}
            for id in level:
                for edge, other in around.get(id, ()):
                    if other not in ways:
                        ahead.setdefault(other, []).extend((*way, edge, other) for way in ways[id])
            if b in ahead:
                return frozenset(ahead[b][0]) if len(ahead[b]) == 1 and len(ahead[b][0]) >= 5 else frozenset()
            ways.update(ahead)
            level = deque(ahead)
        return frozenset()


def questions(text: Text, count: int) -> list[Question]:
    """Return count questions: the forms in turn, each with its anchors in a shuffled order that never changes."""
    rng = random.Random(4)
    ids = sorted(text.kinds)
    queues: list[list[Question]] = []
    for form in FORMS[text.name]:
        found = [Question(form.text.format(id), (id,), rows) for id in ids if text.kinds[id] == form.kind and (rows := text.on_ways(id, form.ways))]
        queues.append(found)
    pairs = [(a, b) for a in ids for b in ids if a < b]
    rng.shuffle(pairs)
    queues.append([Question(JOINED.format(a, b), (a, b), rows) for a, b in pairs[:600] if (rows := text.between(a, b))])
    for queue in queues:
        rng.shuffle(queue)
    out: list[Question] = []
    while len(out) < count and any(queues):
        for queue in queues:
            if queue and len(out) < count:
                out.append(queue.pop())
    assert len(out) == count, f"{text.name}: {len(out)} questions of {count}"
    return out


# --- the three sessions ---------------------------------------------------------------------------------------------

MODULES = ("json", "json.decoder", "json.encoder", "json.scanner", "textwrap", "heapq", "shlex", "fnmatch", "glob", "bisect", "string", "reprlib", "pprint")


def coding() -> Text:
    """Return a session over sources of the standard library: files, symbols with what their docstrings promise, calls; tasks and claims."""
    nodes: list[str] = []
    edges: list[str] = []
    known: dict[str, str] = {}
    trees = {name: ast.parse(inspect.getsource(import_module(name))) for name in MODULES}
    for name, tree in trees.items():
        file = _id(name)
        nodes.append(f"+ FILE [{file}] ; path={name.replace('.', '/')}.py ; doc={_promise(tree, name)}")
        for item, qname in _symbols(tree):
            id = known[f"{name}.{qname}"] = _id(f"{name}.{qname}")
            form = "class" if isinstance(item, ast.ClassDef) else "def"
            nodes.append(f"+ SYM [{id}] ; qname={name}.{qname} ; is={form} ; line={item.lineno} ; doc={_promise(item, qname)}")
            edges.append(f"+ [{file}] --(contains)--> [{id}]")
    for name, tree in trees.items():
        for target in _imports(tree, name):
            edges.append(f"+ [{_id(name)}] --(imports)--> [{_id(target)}]")
        for item, qname in _symbols(tree):
            src = known[f"{name}.{qname}"]
            owner = qname.rpartition(".")[0]
            for base in item.bases if isinstance(item, ast.ClassDef) else ():
                if isinstance(base, ast.Name) and (dst := known.get(f"{name}.{base.id}")):
                    edges.append(f"+ [{src}] --(inherits)--> [{dst}]")
            called = dict.fromkeys(_calls(item)) if not isinstance(item, ast.ClassDef) else {}
            for callee in called:
                dst = known.get(f"{name}.{owner}.{callee}") or known.get(f"{name}.{callee}")
                if dst and dst != src:
                    edges.append(f"+ [{src}] --(calls)--> [{dst}]")
    edges = list(dict.fromkeys(edges))
    return Text("coding", [*_parts(nodes), *_parts(edges), (TEXTS / "coding.txt").read_text("utf-8").strip()])


def _parts(lines: list[str]) -> list[str]:
    return ["\n".join(lines[at : at + 100]) for at in range(0, len(lines), 100)]


def _id(name: str) -> str:
    return name.replace(".", "_")


def _promise(item: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> str:
    """Return the first paragraph of a docstring on one line, in quotes; without one, that there is none."""
    text = " ".join((ast.get_docstring(item) or f"{name} has no docstring").split("\n\n")[0].split())[:200]
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _symbols(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | ast.FunctionDef, str]]:
    for item in tree.body:
        if isinstance(item, (ast.ClassDef, ast.FunctionDef)):
            yield item, item.name
        if isinstance(item, ast.ClassDef):
            for method in item.body:
                if isinstance(method, ast.FunctionDef):
                    yield method, f"{item.name}.{method.name}"


def _imports(tree: ast.Module, name: str) -> Iterator[str]:
    package = name.split(".")[0]
    for item in ast.walk(tree):
        targets = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
        if isinstance(item, ast.ImportFrom):
            base = f"{package}.{item.module}" if item.level and item.module else package if item.level else item.module or ""
            targets = [base, *(f"{base}.{alias.name}" for alias in item.names)]
        yield from (target for target in targets if target in MODULES and target != name)


def _calls(item: ast.AST) -> Iterator[str]:
    for call in ast.walk(item):
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Name):
                yield call.func.id
            elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
                yield call.func.attr


def texts() -> list[Text]:
    """Return the three sessions."""
    told = [Text(name, [(TEXTS / f"{name}.txt").read_text("utf-8").strip()]) for name in ("dossier", "story")]
    return [coding(), *told]


# --- the share of needed rows -----------------------------------------------------------------------------------------


def rows_in(text: Text, shown: str) -> set[str]:
    """Return the ids of the rows whose lines are in a text, by their heads: nodes by id, edges by their ends."""
    triples = {triple: edge for edge, triple in text.edges.items()}
    found: set[str] = set()
    for line in shown.split("\n"):
        if m := re.match(r"(?:\+ )?[A-Z]+ \[(\w+)\]", line):
            if "…+" not in line:
                found.add(m[1])
        elif m := re.match(r"(?:\+ |\w+ )?\[(\w+)\] --\((\w+)\)--> \[(\w+)\]", line):
            found.add(triples.get((m[1], m[2], m[3]), ""))
    return found


def cut(lines: Sequence[str], budget: float, count: Callable[[str], float]) -> list[str]:
    """Return the first lines that fit."""
    out: list[str] = []
    for line in lines:
        budget -= count(line)
        if budget < 0:
            break
        out.append(line)
    return out


def share(asked: Sequence[Question], text: Text, show: Callable[[Question], str]) -> float:
    """Return the mean over questions of the share of needed rows that are shown."""
    return sum(len(question.needed & rows_in(text, show(question))) / len(question.needed) for question in asked) / len(asked)


def fill(session: Session, text: Text) -> None:
    """Write a text into a session."""
    for document in text.documents:
        session.mutate(document)


def dump_of(session: Session) -> list[str]:
    """Return every row of a session as a line, in sections: what a reader without a pin map is given."""
    return _all_lines(session, "node") + _all_lines(session, "edge")


def _all_lines(session: Session, form: str) -> list[str]:
    lines: list[str] = []
    cursor = ""
    while True:
        page = session.find(form=form, limit=10_000, cursor=cursor)
        lines += [item.line for item in page.items]
        cursor = page.cursor
        if not cursor:
            return [f"## {form.title()}s", *lines]


def pin_maps(session: Session, budget: int) -> Callable[[Question], str]:
    """Return what shows pinfold's pin map of a question."""

    def show(question: Question) -> str:
        with must_hold("accuracy under budget", "pinfold pin map"):
            found = session.pin_map(*question.anchors, budget_tokens=budget)
            assert found.tokens <= budget and set(question.anchors) <= set(found.ids)
            return found.text

    return show


def peer_maps(peer: Peer, name: str, budget: int, count: Callable[[str], float]) -> Callable[[Question], str]:
    """Return what shows the peer's pin maps of a question, as many rows as fit, the budget shared among its anchors."""

    def show(question: Question) -> str:
        maps = [peer.ask("show", name=name, anchor=anchor, depth=2, max_rows=5_000).split("\n") for anchor in question.anchors]
        return "\n".join(line for lines in maps for line in cut(lines, budget / len(maps), count))

    return show


def peer_fill(peer: Peer, text: Text) -> None:
    """Write a text into a session of the peer: its kinds and fields declared first, as it demands."""
    kinds: dict[str, dict[str, None]] = {}
    lines = [line for document in text.documents for line in document.split("\n") if not line.startswith("#")]
    for line in lines:
        if m := re.match(r"\+ ([A-Z]+) \[", line):
            kinds.setdefault(m[1], {}).update(dict.fromkeys(re.findall(r"; (\w+)=", line)))
    peer.ask("begin", name=text.name, kinds={kind: list(fields) for kind, fields in kinds.items()})
    peer.ask("mutate", name=text.name, documents=["\n".join(lines)], mode="add")
    anchor = next(iter(text.edges.values()))[0]
    if anchor not in rows_in(text, peer.ask("show", name=text.name, anchor=anchor, depth=2, max_rows=5_000)):
        raise WrongAnswer(f"accuracy under budget: {peer.name} does not show what it was given of {text.name}")


def accuracy(table: Table, peer: Peer | None, budgets: Sequence[int] = BUDGETS) -> None:
    """Shares of needed rows at each budget, ours beside the peer's and a dump cut at the same tokens."""
    count = o200k_counter()
    means: dict[tuple[str, int], list[float]] = {}
    total = sum(QUESTIONS.values())
    for text in texts():
        asked = questions(text, QUESTIONS[text.name])
        with Memory("memory://", background=False) as memory:
            session = memory.session(text.name)
            fill(session, text)
            with must_hold("accuracy under budget", "pinfold"):
                dump = dump_of(session)
                assert rows_in(text, "\n".join(dump)) == {*text.kinds, *text.edges}, f"{text.name} is not what was given"
            if peer is not None:
                peer_fill(peer, text)
            for budget in budgets:
                sides: dict[str, Callable[[Question], str]] = {"pinfold pin map": pin_maps(session, budget)}
                if peer is not None:
                    sides[f"{peer.name} pin map, cut"] = peer_maps(peer, text.name, budget, count)
                clipped = "\n".join(cut(dump, budget, count))
                sides["dump, cut"] = lambda question, clipped=clipped: clipped  # type: ignore[misc]
                for name, show in sides.items():
                    found = share(asked, text, show)
                    means.setdefault((name, budget), []).append(found * len(asked))
                    table.rows.append(Row(f"{text.name}, {len(asked)} questions, {budget} tokens", name, "of needed rows", [found]))
            whole = sum(map(count, dump))
            table.rows.append(Row(f"{text.name}, whole dump", f"{len(text.kinds)} nodes, {len(text.edges)} edges", "tokens o200k", [whole], note="share 1.0"))
    for (name, budget), found_by in means.items():
        table.rows.append(Row(f"all {total} questions, {budget} tokens", name, "of needed rows", [sum(found_by) / total]))


# --- twenty turns ---------------------------------------------------------------------------------------------------


def turns(session: Session) -> Iterator[str]:
    """Yield the twenty documents of a task: what an agent notes while it works, one a turn. The session is the coding one."""
    steps = (TEXTS / "turns.txt").read_text("utf-8").strip().split("\n\n")
    assert len(steps) == 20
    yield from steps


def task(budget: int = 800) -> dict[str, list[float]]:
    """Return o200k tokens of each turn's reading: the dump, the pin map, and the pin map with `since`, whose first is whole."""
    count = o200k_counter()

    def tokens(text: str) -> float:
        return sum(map(count, text.split("\n")))

    spent: dict[str, list[float]] = {"dump": [], "pin map": [], "since": []}
    with Memory("memory://", background=False) as memory:
        session = memory.session("coding")
        fill(session, coding())
        etag, seq, known = "", 0, set[str]()
        for document in turns(session):
            with must_hold("twenty turns", "pinfold"):
                before, seq = seq, session.mutate(document).seq
                assert seq > before
                dump = dump_of(session)
                spent["dump"].append(sum(map(count, dump)))
                whole = session.pin_map("TSK1", budget_tokens=budget)
                part = session.pin_map("TSK1", budget_tokens=budget, since=etag)
                assert part.etag == whole.etag and part.delta == bool(etag)
                lines = {line for line in whole.text.split("\n") if not line.startswith("#")}
                assert "TSK1" in whole.ids and whole.tokens <= budget and set(whole.ids) <= set(re.findall(r"\w+", "\n".join(dump)))
                assert lines - known <= set(part.text.split("\n"))  # who has read what came before knows the whole by it
            etag, known = whole.etag, lines
            spent["pin map"].append(tokens(whole.text))
            spent["since"].append(tokens(part.text))
    return spent


def twenty_turns(table: Table) -> None:
    """Tokens of the task's reading, summed over the turns after the first, in which every way costs a whole map."""
    spent = {name: sum(runs[1:]) for name, runs in task().items()}
    bench = "twenty turns: reading after the first"
    table.rows.append(Row(bench, "dump each turn", "tokens o200k", [spent["dump"]]))
    table.rows.append(Row(bench, "pin map each turn", "tokens o200k", [spent["pin map"]], spent["pin map"] / spent["dump"]))
    table.rows.append(Row(bench, "pin map with since", "tokens o200k", [spent["since"]], spent["since"] / spent["dump"]))
    table.rows.append(Row("twenty turns: delta beside the pin map", "pin map with since", "of it", [spent["since"] / spent["pin map"]]))


def budget(bench: Any) -> None:
    """Accuracy under budget, and the tokens of a task of twenty turns. Tokens, not time."""
    accuracy(bench.table, bench.memnet())
    twenty_turns(bench.table)
