"""What `search` and `resolve_context` answer: hits of one or two sessions, what is near them, within a budget of tokens.

Rules:
- each session is searched by its own index, so no score depends on another session; two answers are merged by rank score
  times that session's confidence, exact labels and keys first;
- a hit's score is 100 x its own confidence, from direct match alone;
- a neighbour's score is 0.6 x its own confidence + 0.4 x that of the hit it was reached from x the decayed weights on the
  way: never above both, and a weak edge says less than a strong one;
- a budget passes over what does not fit and goes on; it is never silent about what it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pinfold.graph_session import View, names_of
from pinfold.recall.bind import with_meta
from pinfold.recall.document import Answer, Document, Hit
from pinfold.recall.parts import EVERYTHING, Filter
from pinfold.recall.read import AnyRow, predicate
from pinfold.recall.tokens import line_tokens
from pinfold.recall.traverse import path_of, spread
from pinfold.recall_session import BAR, FoundNode, NearNode, RecallSession, Resolved, Searched
from pinfold.state.graph import Graph, Law, Node, format_time
from pinfold.state.inputs import SUPERSEDED_BY
from pinfold.state.memory_rows import content_of, kind_of_type, label_of, moment_ms, type_of
from pinfold.state.resting import VALID_FROM, VALID_UNTIL, overlaps, validity_of

OWN_SHARE, SEED_SHARE = 0.6, 0.4
SPARE_HITS = 20
"""Further hits that are looked at: some are neighbours only, some do not fit a budget."""
NEIGHBOURS_LOOKED_AT = 2_000
RESOLVED_AMONG = 10


class Asked(msgspec.Struct, frozen=True):
    """A query, the relations to follow, whether to explain and to show superseded rows, and what makes a filter of one graph's rows."""

    query: str
    relations: frozenset[str] | None
    explain: bool
    superseded: bool
    filter: Callable[[Graph], Filter]


def filter_of(kinds: Any, where: Any, group: Any, since: Any, until: Any, actor: Any) -> Callable[[Graph], Filter]:
    """Return what makes the filter over a graph. Raises Refused `bad_type`, `bad_where`, `bad_time`."""
    since_ms, until_ms = moment_ms(since, "since"), moment_ms(until, "until")
    named = names_of(kinds, "kinds") or None
    wanted = None if named is None else frozenset(map(kind_of_type, named))
    groups, actors = (frozenset(names) if (names := names_of(given, name)) else None for name, given in (("group", group), ("actor", actor)))
    matches = predicate(where)
    if wanted is None and groups is None and actors is None and since_ms is None and until_ms is None and matches is None:
        return lambda graph: EVERYTHING
    return lambda graph: Filter(
        kinds=wanted,
        groups=groups,
        actors=actors,
        since_ms=since_ms,
        until_ms=until_ms,
        where=None if matches is None else lambda document: _matches(graph, document, matches),
    )


def _matches(graph: Graph, document: Document, matches: Callable[[AnyRow], bool]) -> bool:
    row = graph.row(document.id)
    return row is not None and matches(with_meta(row) if isinstance(row, Node) else row)


# --- search -------------------------------------------------------------------------------------------------------


class _Candidate(msgspec.Struct):
    """A hit with where it was found and where it ranks."""

    rank: tuple[bool, float, float, str]
    session: RecallSession
    hit: Hit
    shown: FoundNode | None = None


def search(sessions: Sequence[RecallSession], asked: Asked, depth: int, k: int, offset: int, budget_tokens: int | None) -> Searched:
    """Return the answer of these sessions; see `RecallSession.search`."""
    spare = budget_tokens is not None or any(session._replica.state.graph.edges for session in sessions)
    wanted = offset + k + (SPARE_HITS if spare else 1)
    found: list[_Candidate] = []
    answers: list[Answer] = []
    totals = [0, 0]
    suppressed: dict[str, list[str]] = {}
    for session in sessions:
        replica = session._replica
        replica.catch_up()
        with replica.lock:
            view = session._view()
        totals[0] += len(view.graph.nodes)
        totals[1] += len(view.graph.edges)
        if replica.is_over():
            answers.append(Answer((), 0.0, low=True, miss=True, note="nothing is stored"))
            continue
        filter = asked.filter(view.graph)
        recall = session._recall()
        shelves = [recall]
        if (asked.superseded or asked.explain) and replica.state.inputs.superseded:
            shelves.append(recall.older())
        for shelf in shelves:
            answer = shelf.search(asked.query, wanted, filter=filter, now_ms=view.now_ms, relations=asked.relations, explain=asked.explain)
            if shelf is not recall and not asked.superseded:
                suppressed.setdefault("superseded", []).extend(hit.id for hit in answer.hits)
                continue
            answers.append(answer)
            for hit in answer.hits:
                if depth and hit.why == ("edge",):
                    continue  # a neighbour, and shown as one
                weight = hit.score * max(answer.confidence, 0.01)
                found.append(_Candidate(("exact" not in hit.why, -weight, 0.0, hit.id), session, hit))
        if asked.explain and filter is not EVERYTHING:
            shown = {candidate.hit.id for candidate in found if candidate.session is session}
            unfiltered = recall.search(asked.query, wanted, now_ms=view.now_ms, relations=asked.relations)
            suppressed.setdefault("filters", []).extend(hit.id for hit in unfiltered.hits if hit.id not in shown)
    if len(answers) > 1:
        found.sort(key=lambda candidate: candidate.rank)
    kept: list[_Candidate] = []
    wanted = offset + k + 1 if budget_tokens is None else len(found)
    while found and len(kept) < wanted:  # some may have gone while we ranked
        part, found = found[: wanted - len(kept)], found[wanted - len(kept) :]
        _show(part, asked.explain)
        kept += [candidate for candidate in part if candidate.shown is not None]
    more = len(kept) > offset + k
    _judge(kept[offset:])
    direct, tokens, note = _within(kept[offset:], k, budget_tokens, suppressed if asked.explain else None)
    near = _neighbours(direct, asked, depth, 2 * k) if depth and direct else []
    if budget_tokens is not None:
        fitting = []
        for node in near:
            if tokens + (cost := _cost(node)) <= budget_tokens:
                fitting.append(node)
                tokens += cost
        near = fitting
    best = max(answers, key=lambda answer: answer.confidence)
    notes = list(dict.fromkeys(answer.note for answer in answers if answer.note and not (kept and answer.note == "nothing is stored")))
    return Searched(
        asked.query,
        [candidate.shown for candidate in direct if candidate.shown is not None],
        near,
        totals[0],
        totals[1],
        round(best.confidence, 4),
        all(answer.low for answer in answers),
        "; ".join([*notes, *([note] if note else [])]),
        offset + k if more and k else None,
        None if budget_tokens is None else int(-(-tokens // 1)),
        suppressed,
    )


def _within(candidates: list[_Candidate], k: int, budget_tokens: int | None, suppressed: dict[str, list[str]] | None) -> tuple[list[_Candidate], float, str]:
    """Return (the first k that fit, tokens they take, what to say of those that do not)."""
    if budget_tokens is None:
        return candidates[:k], 0.0, ""
    kept: list[_Candidate] = []
    used, least, passed = 0.0, 0.0, []
    for candidate in candidates:
        if len(kept) == k:
            break
        cost = _cost(candidate.shown)
        if used + cost <= budget_tokens:
            kept.append(candidate)
            used += cost
        else:
            passed.append(candidate.hit.id)
            least = cost if not least else min(least, cost)
    if suppressed is not None and passed:
        suppressed["budget"] = passed
    note = ""
    if passed:
        count = f"{len(passed)} match{'es' if len(passed) > 1 else ''}"
        note = f"{count} did not fit; the smallest needs {int(-(-least // 1))} tokens" if kept else f"{count} need {int(-(-least // 1))} tokens or more"
        if not kept and len(passed) == 1:
            note = f"1 match needs {int(-(-least // 1))} tokens"
    return kept, used, note


def _cost(node: Any) -> float:
    return line_tokens(msgspec.json.encode(node).decode())


def _show(candidates: Sequence[_Candidate], explain: bool) -> None:
    """Give each candidate what is shown of it, unless it is gone by now."""
    for session in {id(candidate.session): candidate.session for candidate in candidates}.values():
        with session._replica.lock:
            view = session._view()
            for candidate in candidates:
                if candidate.session is session:
                    candidate.shown = _shown(view, session._replica.name, candidate.hit, explain)


def _shown(view: View, name: str, hit: Hit, explain: bool) -> FoundNode | None:
    row = view.graph.live(hit.id, view.now_ms)
    if not isinstance(row, (Node, Law)):
        return None
    parts: dict[str, float] = {}
    for part in hit.parts if explain else ():
        parts[part.name] = round(parts.get(part.name, 0.0) + part.amount, 4)
    return FoundNode(
        row.id,
        label_of(row),
        type_of(row),
        content_of(row, view.schema),
        _score(hit.confidence),
        list(hit.why),
        name,
        hit.count,
        list(hit.duplicates),
        row.get("at") or _time(row.mark[1]),
        parts,
        superseded_by=row.get(SUPERSEDED_BY),
        held=_held(row, view.now_ms),
    )


def _held(row: Node | Law, now_ms: int) -> str:
    """Return the field by which a row does not hold now, "" for one that does."""
    held = validity_of(row)
    if held is None or overlaps(held, now_ms, now_ms + 1):
        return ""
    name = VALID_FROM if held[0] is not None and held[0] > now_ms else VALID_UNTIL
    return f"{name}={row.get(name)}"


def _judge(candidates: Sequence[_Candidate]) -> None:
    """Say of each candidate that is stale that it is. Files are looked at for it, so not under the lock."""
    for session in {id(candidate.session): candidate.session for candidate in candidates}.values():
        causes = session._because_of([candidate.hit.id for candidate in candidates if candidate.session is session])
        for candidate in candidates if causes else ():
            if candidate.session is session and candidate.shown is not None and candidate.hit.id in causes:
                candidate.shown = msgspec.structs.replace(candidate.shown, stale=True, because=list(causes[candidate.hit.id]))


def _time(at_ms: int) -> str:
    try:
        return format_time(at_ms)
    except (OverflowError, ValueError):
        return ""


def _score(confidence: float) -> float:
    return round(100.0 * min(1.0, max(0.0, confidence)), 1)


def _neighbours(direct: list[_Candidate], asked: Asked, depth: int, most: int) -> list[NearNode]:
    """Return the best nodes near the hits, each at its shortest depth, never a hit itself."""
    found: list[NearNode] = []
    for session in {id(candidate.session): candidate.session for candidate in direct}.values():
        hits = {candidate.hit.id: candidate.hit for candidate in direct if candidate.session is session}
        replica = session._replica
        with replica.lock:
            view = session._view()
            graph = view.graph
            starts = [id for id in hits if id in graph.nodes]
            reached, _ = spread(graph, starts, depth, asked.relations, view.now_ms, NEIGHBOURS_LOOKED_AT)
            near = [step for step in reached.values() if step.edge is not None]
            if not near:
                continue
            paths = {step.id: path_of(graph, reached, step.id) for step in near}
            seeds = {step.id: _seed(graph, reached, step.id) for step in near}
        own = session._recall().confidences(asked.query, [step.id for step in near], view.now_ms)
        with replica.lock:
            for step in near:
                row = graph.live(step.id, view.now_ms)
                if not isinstance(row, Node) or step.id in view.without:
                    continue
                seed = hits[seeds[step.id]].confidence
                score = _score(OWN_SHARE * own.get(step.id, 0.0) + SEED_SHARE * seed * step.strength)
                found.append(NearNode(row.id, label_of(row), type_of(row), content_of(row, view.schema), score, step.depth, paths[step.id], replica.name))
        if causes := session._because_of([node.node_id for node in found if node.session == replica.name]):
            found = [
                msgspec.structs.replace(node, stale=True, because=list(causes[node.node_id]))
                if node.session == replica.name and node.node_id in causes
                else node
                for node in found
            ]
    found.sort(key=lambda node: (-node.score, node.depth, node.node_id))
    return found[:most]


def _seed(graph: Graph, reached: Mapping[str, Any], id: str) -> str:
    while (edge := reached[id].edge) is not None:
        id = edge.src if edge.dst == id else edge.dst
    return id


# --- resolve ------------------------------------------------------------------------------------------------------


def resolve(sessions: Sequence[RecallSession], key: str, min_score: float) -> Resolved:
    """Return the memory that answers a key best and surely enough, else a miss with the best score seen."""
    best: tuple[bool, float, RecallSession, Hit] | None = None
    seen = 0.0
    for session in sessions:
        replica = session._replica
        replica.catch_up()
        if replica.is_over():
            continue
        answer = session._recall().search(key, RESOLVED_AMONG, now_ms=replica.now_ms())
        seen = max(seen, min(answer.confidence, 1.0))
        # Scripts without spaces are flagged low but never declared missed: there the bar is not to be trusted.
        sure = answer.confidence >= min_score if min_score != BAR else not answer.miss
        if not answer.hits or not sure:
            continue
        hit = next((hit for hit in answer.hits if hit.confidence >= min_score), answer.hits[0])
        exact = "exact" in hit.why
        if best is None or (exact, answer.confidence) > best[:2]:
            best = (exact, answer.confidence, session, hit)
    if best is not None:
        exact, confidence, session, hit = best
        candidate = _Candidate((exact, 0.0, 0.0, hit.id), session, hit)
        _show([candidate], False)
        if (shown := candidate.shown) is not None:
            return Resolved("long_term", shown.content, round(min(1.0, confidence), 4), shown.node_id, session._replica.name)
    return Resolved("miss", None, round(min(seen, 1.0), 4))
