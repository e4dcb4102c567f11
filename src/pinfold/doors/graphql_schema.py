"""The GraphQL schema over a store, and what its fields resolve to. Reads take the replica's lock for one field at a time.

Every read and change goes through a row of the operations table where there is one, so the door's checks, the units and
the refusals are the same as everywhere.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pinfold import limits
from pinfold.errors import Refused
from pinfold.operations.table import Call, raw_of, run, shown, whole_ms

if TYPE_CHECKING:
    from graphql import GraphQLSchema

    from pinfold.session import Session

Info = Any
"""graphql-core's GraphQLResolveInfo: its context is a Request."""
PAGE = 20
PAGE_MAX = 500
REQUEST_S = 10.0
"""A request that takes longer is refused where it is: nobody else waits for its scans."""
ANSWER_BYTES = 32 << 20
"""What a request may carry away, however often it asks for the same long value."""

_PAGING = f"first: Int = {PAGE}, after: String"
_STALE = """"Whether what it was made from changed or is gone, and what that is." stale: Boolean! because: [String!]!"""
SDL = f"""
"A whole number beyond 32 bits."
scalar Long
"Any JSON value; bytes show as {{\\"base64\\": …}}."
scalar JSON

enum PromiseStatus {{ PENDING RESOLVED REJECTED UNKNOWN }}
enum Direction {{ OUT IN BOTH }}

type Query {{
  "The sessions of this store."
  sessions({_PAGING}, expired: Boolean = false): SessionConnection!
  "One session; without an id the caller's default. One that does not exist reads as empty."
  session(id: ID): Session!
}}

type Session {{
  id: ID!
  seq: Long!
  status: JSON!
  "Slots in order of their index."
  slots(prefix: String = "", {_PAGING}): SlotConnection!
  "A stored value, null where there is none. Looking counts as a look."
  slot(key: String!): Slot
  promises(status: PromiseStatus, {_PAGING}): PromiseConnection!
  "What is known of a promise; its id is its key."
  promise(id: ID!): Promise!
  "Nodes, oldest first. where: status=open, prio>=3, goal=*ship*; all must hold."
  nodes(kind: String, where: [String!], activeOnly: Boolean = false, {_PAGING}): NodeConnection!
  node(id: ID!): Node
  edges(relation: String, where: [String!], {_PAGING}): EdgeConnection!
  edge(id: ID!): Edge
  laws({_PAGING}): LawConnection!
  "The lines around anchors, within a budget."
  pinMap(anchors: [ID!]!, depth: Int = {limits.WALK_DEPTH}, budgetTokens: Int = {limits.BUDGET_TOKENS}, relations: [String!], kinds: [String!],
    direction: Direction = BOTH, since: String = "", cursor: String = ""): PinMap!
  "Who changed what, oldest first after a seq; without one the newest entries."
  log(after: Long = 0, first: Int = {PAGE}, actor: String): [LogEntry!]!
  schema: [String!]!
  #SEARCH#
}}

type Slot {{
  key: String!
  index: Int
  "The value; a part of it where it is longer than limitBytes."
  value(offset: Int = 0, limitBytes: Int = {limits.PEEK_PART_BYTES}): JSON
  "Where the part above ends, null where the value does."
  nextOffset(offset: Int = 0, limitBytes: Int = {limits.PEEK_PART_BYTES}): Int
  sizeBytes: Int!
  storedAt: String
  expiresAt: String
  actor: String
  {_STALE}
}}
type Promise {{ id: ID! status: PromiseStatus! payload: JSON reason: String owner: String leaseLeftS: Float }}
type Node {{
  id: ID!
  kind: String!
  fields: JSON!
  field(name: String!): String
  line: String!
  seq: Long!
  at: String!
  actor: String
  {_STALE}
  edges(direction: Direction = BOTH, relation: String, {_PAGING}): EdgeConnection!
}}
type Edge {{
  id: ID!
  relation: String!
  source: Node
  target: Node
  fields: JSON!
  field(name: String!): String
  line: String!
  seq: Long!
  at: String!
  actor: String
  {_STALE}
}}
type Law {{ id: ID! fields: JSON! field(name: String!): String line: String! seq: Long! at: String! actor: String {_STALE} }}
type Shown {{ shown: Int! total: Int! }}
type PinMap {{ text: String! etag: String! tokens: Int! laws: Shown! nodes: Shown! edges: Shown! cursor: String }}
type LogEntry {{ seq: Long! at: String! actor: String requestId: String changes: [String!]! }}
type SessionInfo {{ id: ID! seq: Long! sizeBytes: Long! createdAt: String lastUsedAt: String expiresAt: String session: Session! }}

type PageInfo {{ hasNextPage: Boolean! endCursor: String }}
type SessionConnection {{ edges: [SessionEdge!]! pageInfo: PageInfo! totalCount: Int! }}
type SessionEdge {{ cursor: String! node: SessionInfo! }}
type SlotConnection {{ edges: [SlotEdge!]! pageInfo: PageInfo! totalCount: Int! }}
type SlotEdge {{ cursor: String! node: Slot! }}
type PromiseConnection {{ edges: [PromiseEdge!]! pageInfo: PageInfo! totalCount: Int! }}
type PromiseEdge {{ cursor: String! node: Promise! }}
type NodeConnection {{ edges: [NodeEdge!]! pageInfo: PageInfo! totalCount: Int! }}
type NodeEdge {{ cursor: String! node: Node! }}
type EdgeConnection {{ edges: [EdgeEdge!]! pageInfo: PageInfo! totalCount: Int! }}
type EdgeEdge {{ cursor: String! node: Edge! }}
type LawConnection {{ edges: [LawEdge!]! pageInfo: PageInfo! totalCount: Int! }}
type LawEdge {{ cursor: String! node: Law! }}

type Mutation {{
  "Store a result; wakes those who wait. inputs: what it was made from, as file:PATH, row:ID or slot:KEY."
  set(session: ID, key: String!, value: JSON!, ttlS: Float, token: Long, inputs: [String!], requestId: String): SetResult!
  "Own the work on a key unless it is done or in flight; fresh: a stale value is not done."
  claim(session: ID, key: String!, leaseS: Float = {limits.LEASE_MCP_S:g}, fresh: Boolean = false): ClaimResult!
  "Settle a claim with its result."
  fulfil(session: ID, promiseId: ID!, token: Long, payload: JSON!, ttlS: Float, inputs: [String!]): SettleResult!
  "Settle a claim with the reason there is none."
  reject(session: ID, promiseId: ID!, token: Long, error: String!): SettleResult!
  "Lines, all or none."
  mutate(session: ID, text: String!, ifSeq: Long, dryRun: Boolean = false, allowNewRelation: Boolean = false, inputs: [String!]): MutateResult!
  #UPSERT#
  #PROMOTE#
}}
type SetResult {{ status: String! index: Int evicted: [String!]! }}
type ClaimResult {{ hit: Boolean! claimed: Boolean! pending: Boolean! value: JSON promiseId: ID token: Long leaseLeftS: Float }}
type SettleResult {{ status: String! promiseId: ID! index: Int reason: String }}
type MutateResult {{ seq: Long! minted: JSON! lines: [String!]! dropped: [ID!]! warnings: [String!]! }}

type Subscription {{
  "Every entry of a session's journal from now on, or after a seq that is still kept. Over HTTP only, as server-sent events."
  changes(session: ID, after: Long): LogEntry!
}}
"""
_LATER = {
    "search": ("#SEARCH#", f"search(query: String!, topK: Int = 5, maxDepth: Int = 1, kinds: [String!], budgetTokens: Int = {limits.BUDGET_TOKENS}): JSON!"),
    "upsert": ("#UPSERT#", "upsert(session: ID, type: String!, label: String!, content: String!, metadata: JSON): JSON!"),
    "promote": ("#PROMOTE#", 'promote(session: ID, key: String!, value: JSON, nodeType: String = "concept", inputs: [String!]): JSON!'),
}
"""Fields that are there where the operations table has their row."""


class Request:
    """What a request's resolvers share: the call (store, caller, default session) and the time they may take."""

    def __init__(self, call: Call, until_s: float | None = None) -> None:
        self.call = call
        self.until_s = time.monotonic() + REQUEST_S if until_s is None else until_s
        self._bytes_left = ANSWER_BYTES
        self._sessions: dict[str, Session] = {}

    def begin(self) -> None:
        """Let the time run from now on: what came before, loading graphql-core the first time, is no work of the request."""
        if self.until_s != float("inf"):
            self.until_s = time.monotonic() + REQUEST_S

    def check_time(self) -> None:
        if time.monotonic() > self.until_s:
            raise Refused(f"the request takes longer than {REQUEST_S:g} s", code="too_slow", hint="ask for less: fewer scans, smaller pages")

    def weighed(self, value: Any) -> Any:
        """Return a value that goes into the answer. Raises Refused `answer_too_large`."""
        self._bytes_left -= len(raw_of(value)[0])
        if self._bytes_left < 0:
            hint = "smaller pages (first), fewer fields, or parts of values (limitBytes)"
            raise Refused(f"the answer has more than {ANSWER_BYTES} bytes", code="answer_too_large", hint=hint)
        return value

    def session(self, session_id: str | None) -> Session:
        name = session_id if session_id is not None else self.call.session_id
        if name not in self._sessions:
            self.admit("peek", {}, name)
            self._sessions[name] = self.call.memory.session(name)
        return self._sessions[name]

    def admit(self, row_name: str, arguments: dict[str, Any], session_id: str | None) -> None:
        """Raise Refused where the caller may not do this."""
        grant = getattr(self.call.memory, "grant", None)
        if grant is None:
            return
        from pinfold.operations import BY_NAME

        grant.check(BY_NAME[row_name], arguments)
        if session_id is not None:
            grant.need_session(session_id)

    def operate(self, row_name: str, session_id: str | None, **arguments: Any) -> Any:
        """Return the result of a row of the table; absent arguments keep their defaults."""
        from pinfold.operations import BY_NAME

        self.check_time()
        name = session_id if session_id is not None else self.call.session_id
        given = {key: value for key, value in arguments.items() if value is not None or key in ("value", "payload")}
        self.admit(row_name, given, name)
        return self.weighed(run(BY_NAME[row_name], Call(self.call.memory, name, roots=self.call.roots), given))


# --- pages --------------------------------------------------------------------------------------------------------


def _page_size(first: int | None) -> int:
    size = PAGE if first is None else first
    if not 0 <= size <= PAGE_MAX:
        raise Refused(f"first is {size}", code="bad_arguments", hint=f"0 to {PAGE_MAX}; the next page comes with after")
    return size


def _number(after: str | None) -> int:
    if not after:
        return -1
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise Refused(f"after={after[:40]!r} is no cursor", code="bad_arguments", hint="pass an endCursor of a page before")
    return int(after)


def connection(rows: Iterable[tuple[int, Any]], first: int | None, after: str | None) -> dict[str, Any]:
    """Return a page of rows, given in order with the number that is their cursor."""
    size, start = _page_size(first), _number(after)
    edges: list[dict[str, Any]] = []
    total, more = 0, False
    for number, node in rows:
        total += 1
        if number > start:
            if len(edges) < size:
                edges.append({"cursor": str(number), "node": node})
            else:
                more = True
    return {"edges": edges, "pageInfo": {"hasNextPage": more, "endCursor": edges[-1]["cursor"] if edges else None}, "totalCount": total}


class Judged:
    """Why some of a page's slots or rows are stale: looked at once, when the first of them is asked."""

    def __init__(self, session: Session, names: list[str], because: dict[str, tuple[str, ...]] | None = None) -> None:
        self._session = session
        self._names = names
        if because is not None:  # whoever read the page looked already
            self.because = because

    @functools.cached_property
    def because(self) -> dict[str, tuple[str, ...]]:
        """Why, in words, by input name (row:ID, slot:KEY); only what is stale."""
        return self._session._doubts(self._names)


# --- resolvers ----------------------------------------------------------------------------------------------------


def _request(info: Info) -> Request:
    request: Request = info.context
    request.check_time()
    return request


def _sessions(_: Any, info: Info, first: int | None, expired: bool, after: str | None = None) -> Any:
    request = _request(info)
    request.admit("session_list", {}, None)
    rows = request.call.memory.sessions(expired=bool(expired))
    return connection(enumerate(rows), first, after)


def _session(_: Any, info: Info, id: str | None = None) -> Any:
    return _request(info).session(id)


def _slots(session: Session, info: Info, first: int | None, prefix: str | None = "", after: str | None = None) -> Any:
    _request(info)
    keys = session.keys(prefix or "")
    slots = session._replica.slots
    found = ((slot.index, (session, key, slot)) for key in keys if (slot := slots.get(key)) is not None)
    page = connection(found, first, after)
    return _with_judged(page, Judged(session, [f"slot:{edge['node'][1]}" for edge in page["edges"]]))


def _slot(session: Session, info: Info, key: str) -> Any:
    _request(info)
    because = getattr(session.peek(key), "because", None) or ()
    with session._replica.lock:
        slot = None if session._replica.is_over() else session._replica.state.silo.live(key, session._replica.now_ms())
    return None if slot is None else (session, key, slot, Judged(session, [], {f"slot:{key}": because}))


def _part(found: Any, offset: int | None, limit_bytes: int | None) -> dict[str, Any]:
    from pinfold.operations.table import part_of

    session, _, slot, _ = found
    return part_of(session._replica.value_of(slot.value), offset or 0, min(limit_bytes or limits.PEEK_PART_BYTES, limits.PEEK_PART_BYTES))


def _promises(session: Session, info: Info, first: int | None, status: str | None = None, after: str | None = None) -> Any:
    _request(info)
    replica = session._replica
    replica.catch_up()
    with replica.lock:
        ids = [] if replica.is_over() else list(replica.state.promises.by_key)
    states = ((place, session.promise(id)) for place, id in enumerate(ids))
    if status is not None:
        states = ((place, state) for place, state in states if _status(state) == status)
    return connection(states, first, after)


def _status(state: Any) -> str:
    status = str(state.status).upper()
    return status if status in ("PENDING", "REJECTED", "UNKNOWN") else "RESOLVED"


def _rows(session: Session, info: Info, form: str, first: int | None, after: str | None, **filters: Any) -> Any:
    _request(info)
    from pinfold.state.graph import line_of

    number = _number(after)
    found = session.find(form=form, limit=_page_size(first), cursor="" if number < 0 else str(number), **filters)
    with session._replica.lock:
        view = session._view()
        rows = [row for item in found.items if (row := view.graph.row(item.id)) is not None]
        edges = [{"cursor": str(row.born), "node": (session, row, line_of(row, view.schema))} for row in rows]
    page = {"hasNextPage": bool(found.cursor), "endCursor": edges[-1]["cursor"] if edges else None}
    judged = Judged(session, [], {f"row:{item.id}": item.because for item in found.items})
    return _with_judged({"edges": edges, "pageInfo": page, "totalCount": found.total}, judged)


def _with_judged(page: dict[str, Any], judged: Judged) -> dict[str, Any]:
    """Return a page whose nodes share one judgement of what is stale among them."""
    for edge in page["edges"]:
        edge["node"] = (*edge["node"], judged)
    return page


def _nodes(session: Session, info: Info, first: int | None, activeOnly: bool | None = False, after: str | None = None, **filters: Any) -> Any:
    return _rows(session, info, "node", first, after, active_only=bool(activeOnly), **filters)


def _edges(session: Session, info: Info, first: int | None, after: str | None = None, **filters: Any) -> Any:
    return _rows(session, info, "edge", first, after, **filters)


def _laws(session: Session, info: Info, first: int | None, after: str | None = None) -> Any:
    return _rows(session, info, "law", first, after)


def _row(form: str, session: Session, info: Info, id: str) -> Any:
    _request(info)
    return _live(session, id, form)


def _live(session: Session, id: str, form: str) -> Any:
    from pinfold.state.graph import Edge, Node, line_of

    with session._replica.lock:
        view = session._view()
        row = view.graph.live(id, view.now_ms)
        if not isinstance(row, Node if form == "node" else Edge):
            return None
        return session, row, line_of(row, view.schema), Judged(session, [f"row:{id}"])


def _edges_of(found: Any, info: Info, first: int | None, direction: str | None = "BOTH", relation: str | None = None, after: str | None = None) -> Any:
    _request(info)
    from pinfold.state.graph import line_of

    session, node, _, _ = found
    with session._replica.lock:
        view = session._view()
        graph = view.graph
        both = direction is None or direction == "BOTH"
        edges = graph.edges_of(node.id) if both else list(graph.edges_out(node.id) if direction == "OUT" else graph.edges_into(node.id))
        live = [edge for edge in edges if (relation is None or edge.rel == relation) and not graph.is_hidden(edge, view.now_ms)]
        live.sort(key=lambda edge: edge.born)
        page = connection(((edge.born, edge) for edge in live), first, after)
        for edge in page["edges"]:
            edge["node"] = (session, edge["node"], line_of(edge["node"], view.schema))
    return _with_judged(page, Judged(session, [f"row:{edge['node'][1].id}" for edge in page["edges"]]))


def _end(which: str, found: Any, info: Info) -> Any:
    _request(info)
    session, edge, _, _ = found
    return _live(session, getattr(edge, which), "node")


def _pin_map(session: Session, info: Info, anchors: list[str], direction: str | None = "BOTH", **rest: Any) -> Any:
    names = {"budgetTokens": "budget_tokens"}
    told = {names.get(name, name): value for name, value in rest.items()}
    return _request(info).operate("pin_map", session.session_id, anchor=anchors, direction=(direction or "BOTH").lower(), **told)


def _log(session: Session, info: Info, first: int | None, after: int | None = 0, actor: str | None = None) -> Any:
    found = _request(info).operate("log", session.session_id, after=after, limit=_page_size(first), actor=actor)
    return [entry_shape(entry) for entry in found["entries"]]


def entry_shape(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "requestId": entry.get("request_id"), "actor": entry.get("actor")}


def _search(session: Session, info: Info, query: str, topK: int | None = 5, maxDepth: int | None = 1, **rest: Any) -> Any:
    found = {"budget_tokens": rest.get("budgetTokens"), "kinds": rest.get("kinds")}
    return _request(info).operate("search", session.session_id, query=query, top_k=min(topK or 5, PAGE_MAX), max_depth=maxDepth, **found)


def _set(_: Any, info: Info, key: str, value: Any, session: str | None = None, **rest: Any) -> Any:
    given = {"ttl_s": rest.get("ttlS"), "token": rest.get("token"), "inputs": rest.get("inputs"), "request_id": rest.get("requestId")}
    return {"evicted": [], **_request(info).operate("set", session, key=key, value=value, **given)}


def _claim(_: Any, info: Info, key: str, session: str | None = None, leaseS: float | None = None, fresh: bool | None = None) -> Any:
    found = _request(info).operate("claim", session, key=key, lease_s=leaseS, fresh=fresh)
    pending = found.get("status") == "pending"
    return {
        "hit": found["hit"] and not pending, "claimed": found.get("claimed", False), "pending": pending, "value": found.get("value"),
        "promiseId": found.get("promise_id"), "token": found.get("token"), "leaseLeftS": found.get("lease_left_s"),
    }  # fmt: skip


def _fulfil(_: Any, info: Info, promiseId: str, payload: Any, session: str | None = None, **rest: Any) -> Any:
    given = {"token": rest.get("token"), "ttl_s": rest.get("ttlS"), "inputs": rest.get("inputs")}
    return {**_request(info).operate("resolve", session, promise_id=promiseId, payload=payload, **given), "promiseId": promiseId}


def _reject(_: Any, info: Info, promiseId: str, error: str, session: str | None = None, token: int | None = None) -> Any:
    return {**_request(info).operate("resolve", session, promise_id=promiseId, error=error, token=token), "promiseId": promiseId}


def _mutate(_: Any, info: Info, text: str, session: str | None = None, **rest: Any) -> Any:
    given = {"if_seq": rest.get("ifSeq"), "dry_run": rest.get("dryRun"), "allow_new_relation": rest.get("allowNewRelation"), "inputs": rest.get("inputs")}
    return _request(info).operate("mutate", session, text=text, **given)


def _upsert(_: Any, info: Info, session: str | None = None, **given: Any) -> Any:
    return _request(info).operate("upsert", session, **given)


def _promote(_: Any, info: Info, key: str, session: str | None = None, nodeType: str | None = None, **given: Any) -> Any:
    arguments = {"key": key, "node_type": nodeType, **given}
    return _request(info).operate("promote", session, **arguments)


def _of_row(read: Any) -> Any:
    return lambda found, info, **arguments: info.context.weighed(read(found[1], found[2], **arguments))


def _because(form: str, found: Any, info: Info) -> list[str]:
    _request(info)
    name = f"row:{found[1].id}" if form == "row" else f"slot:{found[1]}"
    return list(found[3].because.get(name, ()))


def _stale_fields(form: str) -> dict[str, Any]:
    because = functools.partial(_because, form)
    return {"because": because, "stale": lambda found, info: bool(because(found, info))}


def _of(name: str) -> Any:
    return lambda found, _info: getattr(found, name)


_ROW_FIELDS = {
    "id": _of_row(lambda row, line: row.id),
    "fields": _of_row(lambda row, line: row.fields),
    "field": _of_row(lambda row, line, name: row.get(name) or None),
    "line": _of_row(lambda row, line: line),
    "seq": _of_row(lambda row, line: row.mark[0]),
    "at": _of_row(lambda row, line: whole_ms(row.mark[1])),
    "actor": _of_row(lambda row, line: row.mark[2]),
    **_stale_fields("row"),
}
RESOLVERS: dict[str, dict[str, Any]] = {
    "Query": {"sessions": _sessions, "session": _session},
    "Session": {
        "id": _of("session_id"),
        "seq": lambda session, info: (session._replica.catch_up(), session._replica.state.seq)[1],
        "status": lambda session, info: _request(info).operate("status", session.session_id),
        "slots": _slots,
        "slot": _slot,
        "promises": _promises,
        "promise": lambda session, info, id: (_request(info), session.promise(id))[1],
        "nodes": _nodes,
        "node": functools.partial(_row, "node"),
        "edges": _edges,
        "edge": functools.partial(_row, "edge"),
        "laws": _laws,
        "pinMap": _pin_map,
        "log": _log,
        "schema": lambda session, info: (_request(info), session.schema())[1],
        "search": _search,
    },
    "Slot": {
        "key": lambda found, info: found[1],
        "index": lambda found, info: found[2].index,
        "value": lambda found, info, offset=0, limitBytes=None: info.context.weighed(_part(found, offset, limitBytes)["value"]),
        "nextOffset": lambda found, info, offset=0, limitBytes=None: _part(found, offset, limitBytes).get("next_offset"),
        "sizeBytes": lambda found, info: len(raw_of(found[0]._replica.value_of(found[2].value))[0]),
        "storedAt": lambda found, info: whole_ms(found[2].stored_at_ms),
        "expiresAt": lambda found, info: whole_ms(found[2].expires_at_ms),
        "actor": lambda found, info: found[2].actor,
        **_stale_fields("slot"),
    },
    "Promise": {
        "id": _of("promise_id"),
        "status": lambda state, info: _status(state),
        "payload": lambda state, info: info.context.weighed(shown(state.payload)),
        "reason": _of("reason"),
        "owner": _of("owner"),
        "leaseLeftS": _of("lease_left_s"),
    },
    "Node": {**_ROW_FIELDS, "kind": _of_row(lambda row, line: row.kind), "edges": _edges_of},
    "Edge": {**_ROW_FIELDS, "relation": _of_row(lambda row, line: row.rel), "source": functools.partial(_end, "src"), "target": functools.partial(_end, "dst")},
    "Law": _ROW_FIELDS,
    "SessionInfo": {
        "id": _of("session_id"),
        "seq": _of("seq"),
        "sizeBytes": _of("size_bytes"),
        "createdAt": lambda row, info: whole_ms(row.created_at),
        "lastUsedAt": lambda row, info: whole_ms(row.last_used_at),
        "expiresAt": lambda row, info: whole_ms(row.expires_at),
        "session": lambda row, info: _request(info).session(row.session_id.partition("@")[0]),
    },
    "Mutation": {
        "set": _set, "claim": _claim, "fulfil": _fulfil, "reject": _reject, "mutate": _mutate, "upsert": _upsert, "promote": _promote,
    },
}  # fmt: skip


@functools.cache
def schema() -> GraphQLSchema:
    """Return the schema. Built once: half a second with the import."""
    from graphql import GraphQLError, GraphQLObjectType, build_schema, value_from_ast_untyped

    from pinfold.operations import BY_NAME

    text = SDL
    for name, (mark, field) in _LATER.items():
        text = text.replace(mark, field if name in BY_NAME else "")
    built = build_schema(text)
    for type_name, fields in RESOLVERS.items():
        kind = built.type_map[type_name]
        assert isinstance(kind, GraphQLObjectType)
        for name, resolve in fields.items():
            if name in kind.fields:
                kind.fields[name].resolve = resolve

    def whole(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
            raise GraphQLError("a Long is a whole number of at most 63 bits")
        return value

    long: Any = built.type_map["Long"]
    long.coerce_input_value = long.coerce_output_value = whole
    long.coerce_input_literal = lambda node: whole(value_from_ast_untyped(node))
    return built
