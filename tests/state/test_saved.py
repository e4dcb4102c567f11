from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.dialect.format import format_value
from pinfold.errors import DocumentRefused
from pinfold.state.graph import Graph
from pinfold.state.saved import format_saved, is_saved, parse_saved
from pinfold.state.schema import Kind, Schema
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore


def text_of(store: GraphStore, *slots: dict[str, str]) -> str:
    return "\n".join(format_saved(store.graph, store.schema, session="demo", seq=store.seq, slots=slots)) + "\n"


@given(st.lists(strategies.documents(), max_size=6), st.lists(strategies.values(), max_size=3), st.sampled_from((None, "ada", "x ; y\n# z")))
@settings(max_examples=40, deadline=None)
def test_a_saved_session_is_loaded_equal(documents: list[str], values: list[str], actor: str | None) -> None:
    store = GraphStore("SCHEMA relations ; names=owns next memberOf\nSCHEMA TSK ; fields=id goal status prio n _k")
    store.append([{"f": "node.put", "id": "kept", "kind": "TSK", "fields": {}, "inputs": ["ü", 1]}])
    for kind in ("T", "T1", "E", "MOD"):
        store.mutate(f"SCHEMA {kind} ; fields=id goal status prio n _k")
    for document in documents:
        try:
            store.mutate(document, actor=actor)
        except DocumentRefused:
            pass
    slots = [{"key": value, "value": value[::-1]} for value in values]
    for value in values:
        store.mutate(f"~ [kept] ; goal={format_value(value)}")
    text = text_of(store, *slots)
    saved = parse_saved(text)
    assert is_saved(text)
    assert (saved.session, saved.seq, saved.slots) == ("demo", store.seq, slots)
    assert saved.graph.dump() == store.graph.dump()
    assert saved.schema.dump() == store.schema.dump()
    assert "\n".join(format_saved(saved.graph, saved.schema, session="demo", seq=store.seq, slots=slots)) + "\n" == text


def test_a_file_that_contradicts_itself_is_refused_with_every_line() -> None:
    text = text_of(GraphStore("+ A [a]\n+ A [b]\n+ [a] --(r)--> [b]"))
    bad = text + "A [a] ; x=1\nE9 [a] --(r)--> [zz]\nE10 [a] --(r)--> [b]\nprose\n"
    with pytest.raises(DocumentRefused) as refused:
        parse_saved(bad)
    assert [p.code for p in refused.value.problems] == ["not_a_record"]
    with pytest.raises(DocumentRefused) as refused:
        parse_saved(bad.replace("prose\n", ""))
    assert [p.code for p in refused.value.problems] == ["id_exists", "no_such_node", "edge_exists"]
    for broken in ("", "hello", text.replace("graph_seq=1", "graph_seq=x"), text.replace("seq=1 ; at_ms", "at_ms")):
        with pytest.raises(DocumentRefused):
            parse_saved(broken)


SAVED = """\
# pinfold snapshot 1
# pinfold session=demo ; seq=9 ; graph_seq=6 ; schema_seq=2 ; born=6 ; colour=light red
# pinfold counters ; TSK=1 ; E=1
# pinfold long_digits ; K=20 ; T=7
SCHEMA TSK ; fields=id goal
SCHEMA KEY ; fields=id name of ; unique=name of
SCHEMA PIN ; fields=id path ; pin=true
SCHEMA relations ; names=owns next
# pinfold kind ; name=KEY ; extra={"unique": ["name", "of"]}
## Laws
# pinfold row seq=1 ; at_ms=1700000000000 ; born=2
LAW01 name=x
## Nodes
# pinfold row seq=6 ; at_ms=1700000000007 ; by=bob ; born=0
TSK [TSK07] ; goal=z
# pinfold row seq=1 ; at_ms=1700000000000 ; born=1
TSK [TSK1] ; goal=b
# pinfold row seq=3 ; at_ms=1700000000000 ; born=3 ; extra={"later": ["\\u00fc", 1]}
KEY [K1]
# pinfold row seq=3 ; at_ms=1700000000000 ; born=4
KEY [K2]
KEY [K3]
# pinfold row seq=3 ; at_ms=1700000000000 ; born=9
KEY [K4]
## Edges
# pinfold row seq=4 ; at_ms=1700000000000 ; by=ada ; born=7
E1 [TSK07] --(owns)--> [TSK1]
SLOT key=k ; value=v w
SLOT key=l ; empty=text
"""


def test_a_file_says_what_is_in_it_and_is_written_again_as_it_was() -> None:
    saved = parse_saved(SAVED)
    assert (saved.session, saved.seq, saved.head["colour"]) == ("demo", 9, "light red")
    assert saved.slots[0] == {"key": "k", "value": "v w"} and saved.slots[1] == {"key": "l", "empty": "text"}
    graph, schema = saved.graph, saved.schema
    assert (graph.seq, graph.born, schema.seq, graph.counters) == (6, 6, 2, {"TSK": 1, "E": 1})
    assert graph.long_digits == {"K": 20, "T": 7}
    assert [(row.id, row.mark, row.born, row.extra) for row in graph.rows()] == [
        ("LAW01", (1, 1_700_000_000_000, None), 2, None),
        ("TSK07", (6, 1_700_000_000_007, "bob"), 0, None),
        ("TSK1", (1, 1_700_000_000_000, None), 1, None),
        ("K1", (3, 1_700_000_000_000, None), 3, {"later": ["ü", 1]}),
        ("K2", (3, 1_700_000_000_000, None), 4, None),
        ("K3", (3, 1_700_000_000_000, None), 5, None),
        ("K4", (3, 1_700_000_000_000, None), 9, None),
        ("E1", (4, 1_700_000_000_000, "ada"), 7, None),
    ]
    assert schema.kinds["PIN"].pin and not schema.kinds["TSK"].pin and schema.kinds["KEY"].extra == {"unique": ["name", "of"]}
    assert schema.relations == ("owns", "next")
    again = format_saved(graph, schema, session="demo", seq=9, more={"colour": "light red"}, slots=saved.slots)
    assert "\n".join(again) + "\n" == SAVED


def test_a_mark_before_the_text_is_no_part_of_it() -> None:
    assert is_saved("\ufeff" + SAVED) and not is_saved(SAVED[1:])
    assert parse_saved("\ufeff" + SAVED).graph.dump() == parse_saved(SAVED).graph.dump()


@pytest.mark.parametrize(
    ("good", "bad", "line", "code", "told"),
    [
        ("# pinfold snapshot 1", "# snapshot", 1, "parse_error", "not a saved session"),
        ("# pinfold row seq=6 ; at_ms", "# pinfold row seq ; at_ms", 14, "parse_error", "not a line of a saved session"),
        ("SLOT key=k", "SLOT key", 28, "parse_error", "not a line of a saved session"),
        ("graph_seq=6", "graph=6", 1, "parse_error", "graph_seq"),
        ("seq=9 ; ", "", 1, "parse_error", "seq"),
        ("schema_seq=2", "schema_seq=two", 1, "parse_error", "two"),
        ("TSK=1 ; E=1", "TSK=one", 1, "parse_error", "one"),
        ("KEY [K1]", "+ KEY [K1]", 19, "parse_error", "present lines"),
        ("KEY [K1]", "- K1", 19, "parse_error", "present lines"),
        ("KEY [K1]", "~ [TSK1] ; goal=x", 19, "parse_error", "present lines"),
        ("KEY [K3]", "KEY [K2]", 22, "id_exists", "K2"),
        ("--> [TSK1]", "--> [TSK9]", 27, "no_such_node", "TSK9"),
        ("[TSK07] --", "[TSK9] --", 27, "no_such_node", "TSK9"),
        ("SLOT key=k", "E2 [TSK07] --(owns)--> [TSK1]\nSLOT key=k", 28, "edge_exists", "[TSK07] --(owns)--> [TSK1]"),
    ],
)
def test_a_damaged_file_is_refused_at_the_line_with_what_to_do(good: str, bad: str, line: int, code: str, told: str) -> None:
    assert good in SAVED
    with pytest.raises(DocumentRefused) as refused:
        parse_saved(SAVED.replace(good, bad))
    (problem,) = refused.value.problems
    assert (problem.line, problem.column, problem.code) == (line, 1, code)
    assert told in problem.message and any(word in problem.hint for word in ("save it again", "keep one", "this one out", "begins with # pinfold"))


def test_rows_of_the_older_dialect_alone_are_no_saved_rows_either() -> None:
    with pytest.raises(DocumentRefused) as refused:
        parse_saved("# pinfold snapshot 1\n# pinfold seq=0 ; graph_seq=0 ; schema_seq=0 ; born=0\n@TSK: T1|x\n@TSK: T2|x")
    assert [(problem.line, problem.code) for problem in refused.value.problems] == [(3, "parse_error"), (4, "parse_error")]


def test_every_line_that_is_wrong_is_named() -> None:
    with pytest.raises(DocumentRefused) as refused:
        parse_saved(SAVED.replace("KEY [K", "+ KEY [K").replace("TSK [TSK1]", "TSK [TSK07]"))
    assert [problem.line for problem in refused.value.problems] == [17, 19, 21, 22, 24, 27]


def test_a_file_without_schema_counters_and_notes_is_a_graph_of_its_lines() -> None:
    saved = parse_saved("# pinfold snapshot 1\n# pinfold seq=0 ; graph_seq=0 ; schema_seq=0 ; born=0\nA [a]\nA [b]")
    assert (saved.session, saved.slots, saved.schema.kinds, saved.schema.relations) == ("", [], {}, None)
    assert [(row.id, row.mark, row.born) for row in saved.graph.rows()] == [("a", (0, 0, None), 0), ("b", (0, 0, None), 1)]
    assert list(format_saved(Graph(), Schema(), session="s", seq=0)) == [
        "# pinfold snapshot 1",
        "# pinfold session=s ; seq=0 ; graph_seq=0 ; schema_seq=0 ; born=0",
    ]


def test_a_saved_file_with_crlf_loads() -> None:
    store = GraphStore("+ A [a] ; x=1")
    saved = parse_saved(text_of(store, {"key": "k", "value": "v"}).replace("\n", "\r\n"))
    assert saved.graph.dump() == store.graph.dump() and saved.slots == [{"key": "k", "value": "v"}] and saved.head["born"] == "1"


def test_kinds_without_fields_and_no_relations_at_all_come_back_wherever_their_lines_stand() -> None:
    schema = Schema()
    schema.kinds["BARE"], schema.relations = Kind("BARE", ()), ()
    lines = list(format_saved(GraphStore("+ A [a]").graph, schema, session="s", seq=0))
    declared = [line for line in lines if line.startswith("SCHEMA ")]
    last = [line for line in lines if line not in declared] + declared
    short = [line.replace(" ; fields=id", "").replace(" ; names=", "") for line in lines]
    assert short != lines
    for text in ("\n".join(lines), "\n".join(last), "\n".join(short)):
        assert parse_saved(text).schema.dump() == schema.dump()


def test_a_large_slot_is_no_field_of_a_row() -> None:
    store = GraphStore()
    slot = {"key": "k", "value": "x" * 1_000_000}
    assert parse_saved(text_of(store, slot)).slots == [slot]
