"""How much a model is made to read: an answer nobody asked to be long stays under DEFAULT_TOKENS, none goes over ANSWER_TOKENS.

A row that reads in pages is asked for a smaller page. What has no pages is cut, and the answer says where: `cut` names each
field with what is shown and what there is, a cut text ends in a mark that no writing verb accepts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pinfold.doors.stdio import encode_json

if TYPE_CHECKING:
    from pinfold.errors import PinfoldError
    from pinfold.operations import Operation

DEFAULT_TOKENS = 2_000
ANSWER_TOKENS = 25_000
SAFE = 0.75
"""Tokens are estimated, and JSON full of digits costs up to a quarter more than that: an answer is held this far below its bound."""

PAGES = {
    "log": ("limit", "entries"),
    "keys": ("limit", "keys"),
    "session_list": ("limit", "sessions"),
    "read_list": ("limit", "items"),
    "walk": ("max_rows", "hops"),
    "traverse": ("limit", "results"),
    "pin_map": ("budget_tokens", "text"),
    "search": ("top_k", "direct"),
    "schema": ("limit", "lines"),
    "housekeep": ("limit", "lines"),
    "stale": ("limit", "stale"),
    "refresh": ("limit", "stale"),
    "conflicts": ("limit", "conflicts"),
    "peek": ("limit_bytes", "value"),
}
"""Row -> (the argument that makes its answer smaller, the field that it bounds)."""
ASKED_FOR = frozenset(("peek", "resolve", "wait", "read_get", "graphql"))
"""Rows whose caller names what comes back: only the outer bound holds."""
ATTEMPTS = 6

Run = Callable[[dict[str, Any]], Awaitable[Any]]


def text_of(row: Operation, result: Any) -> str:
    """Return a result as a model reads it."""
    return row.mcp_text(result) if row.mcp_text is not None else encode_json(result).decode()


async def within(row: Operation, arguments: dict[str, Any], result: Any, run: Run) -> tuple[str, Any]:
    """Return (text, result) of an answer that keeps to its bound. run asks the same row again, with other arguments."""
    text = text_of(row, result)
    if len(text) <= DEFAULT_TOKENS // 4:  # a token is at least a byte
        return text, result
    size, field = PAGES.get(row.name, ("", ""))
    asked = row.name in ASKED_FOR or arguments.get(size) is not None
    most = int((ANSWER_TOKENS if asked else DEFAULT_TOKENS) * SAFE)
    cost = tokens(text)
    if size and not row.changes({**arguments, "claim": False}):
        for _ in range(ATTEMPTS):
            if cost <= most or (count := _count(result, field)) <= 1:
                break
            smaller = max(1 if size != "limit_bytes" else 4, int(count * most / cost * SAFE))
            again = {**arguments, size: smaller}
            if row.name == "peek":
                again |= {"claim": False, "wait_s": 0}
            result = await run(again)
            text = text_of(row, result)
            cost = tokens(text)
    if cost <= most:
        return text, result
    if row.name == "graphql":
        result = {"errors": [{"message": f"the answer has about {cost} tokens, the most is {ANSWER_TOKENS}", "extensions": _TOO_LARGE}]}
        return text_of(row, result), result
    if row.name == "resolve":
        result = _first_part(result, most)
    if "minted" in result:  # the ids are what its caller does not know yet
        most = min(int(ANSWER_TOKENS * SAFE), most + tokens(encode_json(result["minted"]).decode()))
    return _cut(row, result, most)


def refusal_text(error: PinfoldError) -> str:
    """Return a refusal as a model reads it, within its bound too: of many problems the first, and how many there are."""
    shape = error.shape()
    text = encode_json({"error": shape}).decode()
    most = int(DEFAULT_TOKENS * SAFE)
    if len(text) <= most or tokens(text) <= most:
        return text
    short = fit(shape, most)
    return encode_json({"error": {**short, "cut": _cuts(short, shape)}}).decode()


_TOO_LARGE = {"code": "answer_too_large", "hint": "ask for smaller pages (first), fewer fields, or a part of a value (limitBytes)"}


def tokens(text: str) -> int:
    from pinfold.recall.tokens import estimate

    return estimate(text) + text.count("\\") // 4  # what JSON escapes costs more than plain signs


def _count(result: dict[str, Any], field: str) -> int:
    """Return how much of what the size argument bounds is in a result: items, edges, bytes or tokens."""
    found = result.get(field)
    if field == "value":
        from pinfold.operations.table import raw_of

        return len(raw_of(found)[0]) if found is not None else 0
    if field == "text":
        return int(result["tokens"])
    return len(found) if isinstance(found, list) else int(found or 0)


def _first_part(result: dict[str, Any], most: int) -> dict[str, Any]:
    """Return a settled promise's payload in its first part; the rest is read by peek."""
    from pinfold.operations.table import part_of, raw_of

    payload = result.get("payload")
    if payload is None:
        return result
    size = len(raw_of(payload)[0])
    part = part_of(payload, 0, max(4, int(size * most * SAFE / max(1, tokens(encode_json(payload).decode())))))
    return {**result, "payload": part.pop("value"), **part, "hint": "peek with this key and offset=next_offset for the rest"}


def _cut(row: Operation, result: dict[str, Any], most: int) -> tuple[str, Any]:
    room = most
    for _ in range(ATTEMPTS):
        short = fit(result, room)
        cut = _cuts(short, result)
        text = text_of(row, short)
        if row.mcp_text is None:
            short = {**short, "cut": cut}
            text = text_of(row, short)
        else:
            told = ", ".join(f"{name} {share}" for name, share in cut.items())
            text += f"\n# pinfold: cut: {told}; ask for less at once"
        if tokens(text) <= most:
            break
        room = int(room * 0.75)
    return text, short


def _cuts(short: dict[str, Any], whole: dict[str, Any]) -> dict[str, str]:
    """Return what of each shortened field is shown."""
    return {name: _share(short[name], value) for name, value in whole.items() if short[name] != value}


def _share(shown: Any, whole: Any) -> str:
    parts = _size(shown), _size(whole)
    return f"{parts[0]}/{parts[1]}" if parts[0] != parts[1] else "in part"  # of what stands inside


def _size(value: Any) -> int:
    if isinstance(value, str):
        return value.count("\n") + 1 if "\n" in value else len(value)
    return len(value) if isinstance(value, (list, dict)) else 1


def fit(value: Any, room: int) -> Any:
    """Return a value that costs at most about room tokens: lists lose their end, texts get a mark, small fields stay whole."""
    cost = tokens(encode_json(value).decode())
    if cost <= room or not isinstance(value, (str, list, dict)) or not value:
        return value
    if isinstance(value, str):
        return _fit_text(value, room / cost)
    if isinstance(value, list):
        kept: list[Any] = []
        for item in value:
            need = tokens(encode_json(item).decode()) + 1
            if need > room:
                if not kept:
                    kept.append(fit(item, room))
                break
            kept.append(item)
            room -= need
        return kept
    costs = {name: tokens(encode_json(item).decode()) + 3 for name, item in value.items()}
    rest, names = room, sorted(costs, key=costs.__getitem__)
    shares: dict[str, int] = {}
    for place, name in enumerate(names):
        shares[name] = min(costs[name], max(1, rest // (len(names) - place)))
        rest -= shares[name]
    if len(value) > 64 and max(costs.values()) < room // 4:  # a map of many small things: some of them whole
        few: dict[str, Any] = {}
        for name, item in value.items():
            if costs[name] > room:
                break
            few[name] = item
            room -= costs[name]
        return few
    return {name: fit(item, shares[name]) for name, item in value.items()}


def _fit_text(value: str, share: float) -> str:
    keep = max(0, int(len(value) * share * SAFE) - 16)
    line_end = value.rfind("\n", 0, keep)
    if line_end > keep // 2:
        return value[:line_end]
    return f"{value[:keep]}…+{len(value) - keep} chars"
