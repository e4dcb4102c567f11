"""Hypothesis strategies for what silo and journal keep, and for what the dialect and the graph must bear. Needs hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pinfold.entry import GENESIS, Entry, Fact, Record, encode_entry

SMALL_KEYS = ("a", "b", "c", "d")


def silo_keys() -> st.SearchStrategy[str]:
    """Keys of all kinds: valid Unicode, at most a few hundred bytes; composed, decomposed, empty, with NUL."""
    odd = st.sampled_from(["", "\0", "é", "e\u0301", "a:b", "../x", "𐀀", " ", "k" * 300])
    return st.one_of(odd, st.text(st.characters(exclude_categories=["Cs"]), max_size=40))


def json_values() -> st.SearchStrategy[Any]:
    """JSON values as Python has them: exact integers of any size, finite floats, lone surrogates in strings too."""
    leaf = st.one_of(
        st.none(), st.booleans(), st.integers(), st.integers(-(2**80), 2**80), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
    )
    return st.recursive(leaf, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)), max_leaves=12)


def silo_values() -> st.SearchStrategy[Any]:
    """Everything a silo keeps."""
    return st.one_of(json_values(), st.binary(max_size=64), st.text(st.characters(exclude_categories=["Cs"]), max_size=64))


def not_values() -> st.SearchStrategy[Any]:
    """What would not come out as it went in, alone or deep inside."""
    bad = st.one_of(
        st.sampled_from([float("nan"), float("inf"), float("-inf"), b"bytes inside", object()]),
        st.tuples(st.integers()),
        st.sets(st.integers(), min_size=1, max_size=2),
        st.dictionaries(st.integers(), st.none(), min_size=1, max_size=2),
    )
    return st.one_of(st.lists(bad, min_size=1, max_size=2), st.dictionaries(st.text(max_size=4), bad, min_size=1, max_size=2))


def facts() -> st.SearchStrategy[Fact]:
    """Facts of silo, promises and settings, with unknown optional keys now and then."""
    key = st.sampled_from(SMALL_KEYS)
    times = st.integers(0, 2**40)
    value = st.one_of(
        st.fixed_dictionaries({"v": st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.binary(max_size=8))}),
        st.fixed_dictionaries({"j": st.sampled_from([b"null", b"[1,2]", b'{"a":1}'])}),
        st.fixed_dictionaries({"h": st.binary(min_size=32, max_size=32), "n": st.integers(0, 2**24), "y": st.sampled_from("sbj")}),
    )
    extra: st.SearchStrategy[Fact] = st.one_of(st.just({}), st.just({"inputs": ["x"], "valid": 1}))

    def merged(*parts: st.SearchStrategy[Fact]) -> st.SearchStrategy[Fact]:
        return st.tuples(*parts).map(lambda found: {name: item for part in found for name, item in part.items()})

    def named(name: str, required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Fact]:
        return st.fixed_dictionaries({"f": st.just(name), **required}, optional=optional)

    return st.one_of(
        merged(named("slot.put", {"k": key, "i": st.integers(0, 50)}, {"x": times}), value, extra),
        named("slot.drop", {"k": key}, {"why": st.sampled_from(["evicted", "expired"])}),
        merged(
            named(
                "promise.put",
                {"k": key, "s": st.sampled_from(["pending", "resolved", "rejected", "superseded"])},
                {"t": st.integers(1, 99), "l": times, "o": st.text(max_size=4), "r": st.text(max_size=8)},
            ),
            st.one_of(st.just({}), value),
            extra,
        ),
        named("promise.drop", {"k": key}, {}),
        named("touch", {"at": times}, {"hits": st.integers(0, 9), "keys": st.lists(key, max_size=3)}),
        named(
            "session.put",
            {},
            {"created": times, "size": st.one_of(st.none(), st.integers(1, 5)), "ttl": st.one_of(st.none(), times), "later": st.integers(0, 9)},
        ),
    )


def entries() -> st.SearchStrategy[Entry]:
    """Any entry, following nothing."""
    return st.builds(
        Entry,
        seq=st.integers(1, 2**40),
        prev_hash=st.one_of(st.just(GENESIS), st.binary(min_size=16, max_size=16)),
        at_ms=st.integers(0, 2**45),
        request_id=st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16)),
        actor=st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=16)),
        facts=st.lists(facts(), max_size=4),
        result=st.one_of(
            st.none(), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), st.integers(-(2**63), 2**63 - 1), max_size=2)
        ),
    )


@st.composite
def histories(draw: st.DrawFn, max_size: int = 12) -> list[tuple[Entry, Record]]:
    """A session's first entries with their records: seq without gaps, each naming the hash before, times not falling."""
    found: list[tuple[Entry, Record]] = []
    last, at_ms = GENESIS, draw(st.integers(0, 2**40))
    for seq, made in enumerate(draw(st.lists(st.lists(facts(), min_size=1, max_size=4), max_size=max_size)), 1):
        at_ms += draw(st.integers(0, 5_000))
        request_id = draw(st.one_of(st.none(), st.sampled_from(["r1", "r2", "r3"])))
        entry = Entry(seq, last, at_ms, request_id, None, made)
        record = encode_entry(entry)
        found.append((entry, record))
        last = record.hash
    return found


# --- the dialect and the graph ------------------------------------------------------------------------------------

HOSTILE = (
    "x\n+ TSK [NEW] ; goal=evil", "- T1", "~ [T1] ; goal=evil", "## Nodes", "# pinfold: gone T1", "```", "[T1] --(owns)--> [M1]", 'a"b', '"', "\\", "\\n",
    ";", "=", " x", "x ", "\t", "\u00a0x", "x\u3000", "\u2028", "\x85", "\x00", "\x1b[31m", "\ufeff", "NEW", "@TSK: a|b", '{"a": 1}', '"cut"…+12',
    "LAW01 name=x", "é", "用户", "🐟",
)  # fmt: skip


def values() -> st.SearchStrategy[str]:
    """Return field values: plain, hostile and anything that UTF-8 can hold; never empty."""
    return st.one_of(
        st.sampled_from(HOSTILE), st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.from_regex(r"[a-z0-9 ./:]{1,12}", fullmatch=True)
    )


def ids() -> st.SearchStrategy[str]:
    """Return ids, few of them, so that documents meet."""
    return st.sampled_from(("T1", "T2", "T3", "A", "B", "b.c-d", "X9", "E1", "E2", "E3", "T12", "LAW01", "T", "_x"))


def kinds() -> st.SearchStrategy[str]:
    """Return kinds, few of them."""
    return st.sampled_from(("TSK", "T", "T1", "E", "MOD"))


def keys() -> st.SearchStrategy[str]:
    """Return field keys, few of them."""
    return st.sampled_from(("goal", "status", "prio", "n", "_k", "recycle", "ttl"))


def fields() -> st.SearchStrategy[dict[str, str]]:
    """Return the fields of a row, with values that any row may have."""
    plain = st.sampled_from(("goal", "status", "prio", "n", "_k", "Z9"))
    return st.dictionaries(plain, values(), max_size=4)


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return one line of a document, most of them well formed."""
    id, other, kind = draw(ids()), draw(ids()), draw(kinds())
    rel = draw(st.sampled_from(("owns", "next", "memberOf")))
    new = draw(st.sampled_from(("NEW", "NEW:a", "NEW:b", id, id)))
    end = draw(st.sampled_from((id, other, "NEW:a", "NEW:b")))
    tail = draw(tails())
    return draw(
        st.sampled_from(
            (
                f"+ {kind} [{new}]{tail}", f"+ {kind} [{new}]{tail}", f"+ [{end}] --({rel})--> [{other}]{tail}", f"+ {id} [{end}] --({rel})--> [{other}]",
                f"~ [{id}]{tail}", f"~ {id}{tail}", f"~ [{id}] --({rel})--> [{other}]{tail}", f"- {id}", f"- [{id}]",
                f"~ [{id}] ; id={other}{tail}", f"~ [{id}] ; id={other} ; merge=true{tail}", f"LAW01{tail}", "", "# note",
            )
        )
    )  # fmt: skip


@st.composite
def tails(draw: st.DrawFn) -> str:
    """Return the fields of a line as text."""
    parts = draw(
        st.lists(
            st.sampled_from(
                (
                    "goal=ship", "status=open", "status=settled", "prio=3", "prio=x", "prio+=2.5", "prio-=0.5", "n+=1", "goal=", "_k=v",
                    "recycle=delete_on_settle", "recycle=persistent", "ttl=1h", 'goal="a ; b\\n- T1"',
                )
            ),
            max_size=3,
        )
    )  # fmt: skip
    return "".join(f" ; {part}" for part in parts)


def documents() -> st.SearchStrategy[str]:
    """Return documents of a few lines over a small world of ids: many are accepted, many are refused."""
    return st.lists(lines(), min_size=1, max_size=5).map("\n".join)
