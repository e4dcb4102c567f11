"""Rows of the table: long-term memory and the solution engine."""

from __future__ import annotations

from typing import Any

from pinfold.errors import Refused
from pinfold.operations.table import REQUEST_ID, Call, Operation, Param, rests_of, stale_shape
from pinfold.recall_session import BAR, TRAVERSED

_FILTER = Param("edge_filter", "strings", "only along these relations", None, told=False)
_METADATA = Param("metadata", "object", "", None, told=False)


def _remember(call: Call, text: str, by: str | None, group: str | None, at: str | None, name: str | None, kind: str, request_id: str | None) -> dict[str, Any]:
    return {"node_id": call.session.remember(text, by, group, at, name, kind, request_id=request_id).node_id}


def _upsert(call: Call, type: str, label: str, content: str, metadata: dict[str, Any] | None, request_id: str | None) -> dict[str, Any]:
    return _built(call.session.upsert_node(type, label, content, metadata, request_id=request_id))


def _relate(
    call: Call, source_id: str, target_id: str, relation: str, weight: float | None, metadata: dict[str, Any] | None, request_id: str | None
) -> dict[str, Any]:
    return _built(call.session.create_relation(source_id, target_id, relation, weight, metadata, request_id=request_id))


def _search(
    call: Call,
    query: str,
    max_depth: int,
    top_k: int,
    offset: int,
    edge_filter: list[str] | None,
    kinds: list[str] | None,
    where: Any,
    group: str | None,
    in_session: str | None,
    since: str | None,
    until: str | None,
    actor: str | None,
    budget_tokens: int | None,
    superseded: bool,
    explain: bool,
) -> dict[str, Any]:
    found = call.session.search(
        query,
        max_depth=max_depth,
        top_k=top_k,
        offset=offset,
        edge_filter=edge_filter,
        kinds=kinds,
        where=where,
        group=group,
        session=in_session,
        since=since,
        until=until,
        actor=actor,
        budget_tokens=budget_tokens,
        superseded=superseded,
        explain=explain,
    )
    optional = ("note", "next_offset", "tokens", "suppressed")
    return {name: value for name, value in _built(found).items() if name not in optional or value not in ("", None, {})}


def _traverse(call: Call, start_node_id: str, max_depth: int, edge_filter: list[str] | None, limit: int, offset: int) -> dict[str, Any]:
    found = _built(call.session.traverse(start_node_id, max_depth, edge_filter, limit, offset))
    return {name: value for name, value in found.items() if name != "next_offset" or value is not None}


def _interlink(call: Call, items: Any, auto_link: bool) -> dict[str, Any]:
    if isinstance(items, str):  # a file on the command line
        import msgspec

        try:
            items = msgspec.json.decode(items.encode())
        except (ValueError, UnicodeEncodeError) as error:
            raise Refused(f"the items are not JSON: {error}", code="bad_item", hint='[{"type": "concept", "label": "…", "content": "…"}]') from error
    return _built(call.session.add_interlinked(items, auto_link))


def _prune(call: Call, threshold: float, dry_run: bool) -> dict[str, Any]:
    return _built(call.session.prune(threshold, dry_run))


def _promote(call: Call, key: str, value: Any, node_type: str, metadata: dict[str, Any] | None, inputs: list[str] | None) -> dict[str, Any]:
    done = call.session.promote(key, value, node_type, metadata, inputs=rests_of(call, inputs))
    return {"promoted": done.promoted, "node_id": done.node_id, "nodeId": done.node_id}


def _resolve(call: Call, key: str, min_score: float) -> dict[str, Any]:
    found = call.session.resolve_context(key, min_score)
    result: dict[str, Any] = {"source": found.source, "value": call.shown(found.value), "score": found.score}
    optional = {"node_id": found.node_id, "session": found.session, "promise_id": found.promise_id}
    return {**result, **{name: value for name, value in optional.items() if value is not None}, **stale_shape(found.because)}


def _built(result: Any) -> dict[str, Any]:
    import msgspec

    from pinfold.state.outcomes import AlreadyApplied

    if isinstance(result, AlreadyApplied):
        raise result.refused()
    built: dict[str, Any] = msgspec.to_builtins(result)
    return built


# --- words --------------------------------------------------------------------------------------------------------


def _told_search(result: dict[str, Any]) -> str:
    lines = []
    for hit in result["direct"]:
        lines.append(f"{hit['score']:5.1f}  {hit['type']} {hit['node_id']}  {_brief(hit)}" + (f"  x{hit['count']}" if hit.get("count", 1) > 1 else ""))
        lines += [f"         {name} {amount:g}" for name, amount in hit.get("parts", {}).items()]
        lines += _notes_on(hit)
    for near in result["neighbors"]:
        lines += [f"{near['score']:5.1f}  {' '.join(near['path'])}  {_brief(near, named=False)}", *_notes_on(near)]
    if result["low"] and result["direct"]:
        lines.append(f"# pinfold: nothing answers this surely (confidence {result['confidence']:.2f})")
    if result.get("note"):
        lines.append(f"# pinfold: {result['note']}")
    return "\n".join(lines)


def _notes_on(node: dict[str, Any]) -> list[str]:
    """Return what must be said of a row that does not simply hold: the comment lines that pin maps have too."""
    from pinfold.dialect.format import format_stale

    notes = [format_stale(node["node_id"], node["because"])] if node.get("stale") else []
    notes += [f"# superseded {node['node_id']} by {node['superseded_by']}"] if node.get("superseded_by") else []
    return notes + ([f"# not now {node['node_id']} ; {node['held']}"] if node.get("held") else [])


def _brief(node: dict[str, Any], named: bool = True) -> str:
    content = " ".join(node["content"].split())
    content = content if len(content) <= 160 else f"{content[:157]}..."
    return f"{node['label']}: {content}" if named and node["label"] not in (node["node_id"], content) else content


def _told_traverse(result: dict[str, Any]) -> str:
    from pinfold.dialect.format import stale_lines

    lines = [f"{row['score']:5.1f}  {' '.join(row['path'])}  [{row['node_id']}]" for row in result["results"]]
    lines += stale_lines({row["node_id"]: row["because"] for row in result["results"] if "because" in row})
    more = result.get("next_offset")
    return "\n".join([*lines, f"# pinfold: {result['total'] - more} more; --offset {more} goes on"] if more else lines)


def _told_prune(result: dict[str, Any]) -> str:
    verb = "would go" if result["status"] == "would_prune" else "pruned"
    return "\n".join(
        [*(f"{verb}: {row['line']}  ({row['why']})" for row in result["what"]), f"{result['removed']} {verb}, {result['remaining_edges']} edges stay"]
    )


ROWS = (
    Operation(
        name="upsert",
        access="write",
        doc="Keep knowledge for later, under type and label; again patches it.",
        params=(
            Param("type", "str", "concept, file, symbol, note or a kind", positional=True, told=False),
            Param("label", "str", "", positional=True, told=False),
            Param("content", "str", "what is known", positional=True, file=True, told=False),
            _METADATA,
            REQUEST_ID,
        ),
        handler=_upsert,
        python="upsert_node",
        toolsets="SP",
        mcp="upsert_memory_node",
        cli=("upsert",),
        text=lambda result: f"{'created' if result['created'] else 'updated'} {result['node_id']}",
        summary="keep knowledge under a type and a label",
        result='status "upserted", node_id, label, node_type, created, access_count, graph_nodes, graph_edges',
    ),
    Operation(
        name="remember",
        access="write",
        doc="Keep what was said, in order inside its group (a conversation).",
        params=(
            Param("text", "str", "what was said", positional=True, file=True),
            Param("by", "str", "who said it: a name, user or assistant", None),
            Param("group", "str", "the conversation it is part of", None),
            Param("at", "str", "when: an ISO time with its zone, or a date", None),
            Param("name", "str", "a label to find it by", None),
            Param("kind", "str", "", "NOTE"),
            REQUEST_ID,
        ),
        handler=_remember,
        python="remember",
        toolsets="A",
        mcp="remember",
        cli=("remember",),
        text=lambda result: f"remembered {result['node_id']}",
        summary="keep what was said, in order",
        result="node_id",
    ),
    Operation(
        name="relation",
        access="write",
        doc="Link two memories; again renews the link.",
        params=(
            Param("source_id", "str", "from this node", positional=True, told=False),
            Param("target_id", "str", "to this one", positional=True, told=False),
            Param("relation", "str", "depends_on, references, or another", positional=True, told=False),
            Param("weight", "float", "0..1", None, told=False),
            _METADATA,
            REQUEST_ID,
        ),
        handler=_relate,
        python="create_relation",
        toolsets="SP",
        mcp="create_relation",
        aliases=("create_memory_relation",),
        cli=("relate",),
        text=lambda result: f"{result['status']} {result['edge_id']} {result['relation']} {result['weight']:g}",
        summary="link two memories",
        result='status "created"|"updated", edge_id, relation, weight',
    ),
    Operation(
        name="search",
        access="read",
        doc="Find memories by meaning, words or label.",
        params=(
            Param("query", "str", "what to look for", positional=True, told=False),
            Param("max_depth", "int", "edges to follow from a hit", 1, told=False),
            Param("top_k", "int", "hits", 5, told=False),
            Param("offset", "int", "next_offset of the page before", 0, mcp=False),
            _FILTER,
            Param("kinds", "strings", "only these types", None, told=False),
            Param("where", "any", '{"prio": {"$gte": 3}}; $eq $ne $gt $gte $lt $lte $in', None, told=False),
            Param("group", "str", "only of this conversation", None, told=False),
            Param("in_session", "str", "only of this session, where two are read", None, mcp=False),
            Param("since", "str", "from this time or date on", None, told=False),
            Param("until", "str", "before this time or date", None, told=False),
            Param("actor", "str", "only what this actor wrote last; said by: --where by=NAME", None, cli="written_by", mcp=False),
            Param("budget_tokens", "int", "pass over what does not fit", None, told=False),
            Param("superseded", "bool", "those too that others took the place of", False, mcp=False),
            Param("explain", "bool", "what each part of a score gave", False, mcp=False),
        ),
        handler=_search,
        python="search",
        toolsets="SCP",
        mcp="search_memory_graph",
        aliases=("recall",),
        cli=("search", "recall"),
        text=_told_search,
        is_empty=lambda result: not result["direct"],
        summary="find memories by meaning, words or label",
        result="query, direct[]{node_id, label, type, content, score, why, session, count?, duplicates?, at?, parts?, stale?, because?, "
        "superseded_by?, held?}, neighbors[]{node_id, label, type, content, score, depth, path, session, stale?, because?}, "
        "total_nodes, total_edges, confidence, low, "
        "note?, next_offset?, tokens?, suppressed?",
        slow=True,
    ),
    Operation(
        name="prune",
        access="write",
        doc="Drop links faded below threshold, and orphans.",
        params=(
            Param("threshold", "float", "a weight, 0..1", 0.15, told=False),
            Param("dry_run", "bool", "only say what would go, and why", False, told=False),
        ),
        handler=_prune,
        python="prune",
        toolsets="SP",
        mcp="prune_stale_links",
        aliases=("prune_memory_links",),
        cli=("prune",),
        text=_told_prune,
        is_empty=lambda result: not result["removed"],
        destructive=True,
        summary="drop faded links and orphans; --dry-run says which and why",
        result='status "pruned"|"would_prune", removed, remaining_edges, what[]{id, line, why}',
    ),
    Operation(
        name="interlink",
        access="write",
        doc="Keep many memories {type, label, content, metadata?} at once and link those alike.",
        params=(
            Param("items", "any", "the memories, as JSON", positional=True, told=False),
            Param("auto_link", "bool", "link what is alike", True, told=False),
        ),
        handler=_interlink,
        python="add_interlinked",
        toolsets="SP",
        mcp="add_interlinked_context",
        aliases=("add_interlinked_memory",),
        cli=("interlink",),
        text=lambda result: f"created {result['nodes_created']}, updated {result['nodes_updated']}, linked {result['edges_created']}",
        summary="keep many memories (--file F, JSON) and link those alike",
        result='status "added", nodes_created, nodes_updated, edges_created, edges_updated, nodes[]{id, type, label, created}, '
        "edges[]{id, source, relation, target, weight, created}",
    ),
    Operation(
        name="traverse",
        access="read",
        doc="Memories around one, nearest first, with their paths.",
        params=(
            Param("start_node_id", "str", "the node to start at", positional=True, told=False),
            Param("max_depth", "int", "edges from it", 2, told=False),
            _FILTER,
            Param("limit", "int", "at most this many", TRAVERSED, told=False),
            Param("offset", "int", "next_offset of the page before", 0, mcp=False),
        ),
        handler=_traverse,
        python="traverse",
        toolsets="SP",
        mcp="retrieve_with_traversal",
        aliases=("retrieve_memory_traversal",),
        cli=("traverse",),
        text=_told_traverse,
        summary="memories around one, nearest first",
        result="start_node, results[]{node_id, label, type, content, depth, score, path, stale?, because?}, total, complete, next_offset?",
        slow=True,
    ),
    Operation(
        name="resolve_context",
        access="read",
        doc="A key's slot, work in flight, memory, or a miss.",
        params=(
            Param("key", "str", "or a question", positional=True, told=False),
            Param("min_score", "float", "below this confidence it is a miss", BAR, told=False),
        ),
        handler=_resolve,
        python="resolve_context",
        toolsets="SCP",
        mcp="resolve_context",
        aliases=("resolve_memory_context",),
        cli=("resolve-context",),
        is_empty=lambda result: result["source"] in ("miss", "pending"),
        summary="a key's slot, work in flight, memory, or a miss",
        result='source "short_term"|"pending"|"long_term"|"miss", value, score, node_id?, session?, promise_id?, stale?:true, because[]?',
        slow=True,
    ),
    Operation(
        name="promote",
        access="write",
        doc="Keep a slot's value (or value) for good.",
        params=(
            Param("key", "str", "", positional=True, told=False),
            Param("value", "any", "instead of the slot's", None, positional=True, told=False),
            Param("node_type", "str", "", "concept", told=False),
            _METADATA,
            Param("inputs", "strings", "what it was made from: file:PATH, row:ID, slot:KEY", None, cli="input", repeat=True, mcp=False),
        ),
        handler=_promote,
        python="promote",
        toolsets="SCP",
        mcp="promote_to_long_term",
        aliases=("promote_memory_to_long_term",),
        cli=("promote",),
        text=lambda result: f"promoted {result['node_id']}",
        summary="keep a slot's value for good",
        result="promoted, node_id, nodeId",
    ),
)
