"""Hypothesis strategies for what the dialect and the graph must bear. Needs hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

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
