from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold import limits
from pinfold.dialect.parse import parse_document
from pinfold.errors import DocumentRefused
from pinfold.state.mutate import add_exact, decide_mutate, parse_ttl_ms
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore

BASE = "+ TSK [T1] ; goal=ship ; status=open ; prio=3\n+ TSK [T2] ; goal=test\n+ MOD [M1] ; path=src/a.py\n+ E1 [T1] --(owns)--> [M1] ; note=core"


def refused(store: GraphStore, text: str, **args: object) -> list[tuple[int, int, str]]:
    before = store.state()
    with pytest.raises(DocumentRefused) as error:
        store.mutate(text, **args)  # type: ignore[arg-type]
    assert store.state() == before
    return [(p.line, p.column, p.code) for p in error.value.problems]


def codes(store: GraphStore, text: str, **args: object) -> list[str]:
    return [code for _, _, code in refused(store, text, **args)]


@pytest.mark.parametrize("text", ["~ [X] ; a=1", "~ [X] ; a=1\n~ [Y] ; a=1"])
def test_a_refusal_says_what_to_do_once(text: str) -> None:
    with pytest.raises(DocumentRefused) as error:
        GraphStore(BASE).mutate(text)
    assert error.value.hint and str(error.value).count(error.value.hint) == 1


@given(st.lists(strategies.documents(), max_size=4), st.lists(strategies.lines(), min_size=1, max_size=5))
@settings(max_examples=90, deadline=None)
def test_a_document_does_what_its_lines_do_one_by_one(setup: list[str], lines: list[str]) -> None:
    whole, single = GraphStore(BASE), GraphStore(BASE)
    for document in setup:
        try:
            whole.mutate(document)
            single.mutate(document)
        except DocumentRefused:
            pass
    # What a document alone can do: forward ends, labels across lines, ids mentioned later, settling at its end.
    if any("NEW" in line or "settled" in line or "delete_on_settle" in line for line in lines):
        lines = [
            line.replace("[NEW:a]", "[T1]")
            .replace("[NEW:b]", "[T2]")
            .replace("[NEW]", "[N]")
            .replace("settled", "open")
            .replace("delete_on_settle", "persistent")
            for line in lines
        ]
    try:
        for line in lines:
            single.mutate(line)
    except DocumentRefused:
        return
    whole.mutate("\n".join(lines))
    assert whole.content() == single.content()
    assert {k: v for k, v in whole.graph.counters.items() if v} == {k: v for k, v in single.graph.counters.items() if v} or "+ [" in "\n".join(lines)


@given(strategies.values())
@settings(max_examples=90, deadline=None)
def test_no_value_ever_acts_and_what_is_printed_pastes_back_refused(value: str) -> None:
    from pinfold.dialect.format import format_value

    store = GraphStore(BASE, f"~ [T1] ; goal={format_value(value)}\n~ E1 ; note={format_value(value)}")
    assert store.graph.nodes["T1"].fields["goal"] == value
    assert len(store.graph) == 4
    pasted = "\n".join(store.lines())
    found = codes(store, pasted)
    assert set(found) == {"present_on_mutate"} and len(found) == 4


@given(strategies.documents())
@settings(max_examples=80, deadline=None)
def test_a_document_may_be_decided_again(text: str) -> None:
    store = GraphStore(BASE)
    batch = parse_document(text + "\n+ TSK [again] ; prio=1\n~ [again] ; prio+=1\n+ [again] --(owns)--> [M1] ; w=1\n~ [again] --(owns)--> [M1] ; w+=1")
    outcomes: list[object] = []
    for _ in range(2):
        try:
            outcomes.append(decide_mutate(store.graph, store.schema, batch, now_ms=1))
        except DocumentRefused as refused:
            outcomes.append(refused.problems)
    assert outcomes[0] == outcomes[1]


def test_a_present_line_is_answered_with_the_line_that_was_meant() -> None:
    store = GraphStore(BASE)
    with pytest.raises(DocumentRefused) as error:
        store.mutate("TSK [T1] ; goal=x\nE1 [T1] --(owns)--> [M1] ; note=y\n[T2] --(next)--> [T1]\n[T1] --(owns)--> [M1]\nTSK [T9]")
    assert [p.hint for p in error.value.problems] == ["~ [T1] ; goal=x", "~ E1 ; note=y", "+ [T2] --(next)--> [T1]", "~ [T1] --(owns)--> [M1]", "+ TSK [T9]"]


def test_a_problem_that_hangs_on_another_line_is_not_reported() -> None:
    store = GraphStore(BASE)
    assert refused(store, "+ tsk [NEW:a]\n+ [NEW:a] --(owns)--> [M1]\n+ [T1] --(owns)--> [X9]\n+ tsk [X9]") == [(1, 3, "parse_error"), (4, 3, "parse_error")]
    assert codes(store, "~ [T77] ; id=T78\n~ [T78] ; a=b\n- T78") == ["not_found"]
    assert codes(store, "~ [T77] ; a=b\n~ [T77] ; a=c") == ["not_found", "not_found"]
    assert codes(store, "- T1 x\n+ TSK [T1]") == ["parse_error"]
    assert codes(store, "+ TSK [T1]\n+ TSK [T1]\n+ [T1] --(next)--> [T2]") == ["id_exists", "id_exists"]
    assert codes(store, "+ TSK [NEW:a] ; id=x\n+ [NEW:a] --(next)--> [T2]\n+ [NEW:a] --(next)--> [T2]") == ["id_on_create", "edge_exists"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("+ EDG [X]", "reserved_id"),
        ("+ TSK [SCHEMA]", "reserved_id"),
        ("+ LAW [T1] --(owns)--> [T2]", "reserved_id"),
        ("~ [T1] ; id=NEW", "reserved_id"),
        ("~ [T1] ; id=", "parse_error"),
        ("~ [T1] ; id=a b", "parse_error"),
        ("~ [T1] ; id=T3 ; merge=maybe", "parse_error"),
        ("~ [T1] ; id+=3", "parse_error"),
        ("~ [T1] ; id=T99 ; merge=true", "not_found"),
        ("~ E1 ; id=T1 ; merge=true", "merge_edge"),
        ("~ [T1] ; id=E1 ; merge=true", "merge_edge"),
        ("~ E1 ; id=T1", "id_occupied"),
        ("~ E1 [T1] --(owns)--> [T2] ; note=x", "not_found"),
        ("~ T1 [T1] --(owns)--> [M1]", "not_found"),
        ("~ [T2] --(owns)--> [M1]", "not_found"),
        ("+ [E1] --(owns)--> [T1]", "no_such_node"),
        ("+ [NEW] --(owns)--> [T1]", "no_such_label"),
        ("+ NEW:e [T1] --(x)--> [T2]\n+ [NEW:e] --(owns)--> [T1]", "no_such_node"),
        ("+ TSK [NEW] ; ttl=30", "bad_ttl"),
        ("+ TSK [NEW] ; ttl=0s", "bad_ttl"),
        ("+ TSK [NEW] ; ttl=1h ; expires=2030-01-01", "bad_ttl"),
        ("~ [T1] ; expires=soon", "bad_ttl"),
        ("~ [T1] ; ttl+=3", "bad_ttl"),
        ("~ [T1] ; recycle=never", "bad_recycle"),
        ("- E1\n- E1", "not_found"),
        ("- T1\n- E1", "not_found"),
    ],
)
def test_refusals_have_their_code(text: str, code: str) -> None:
    assert codes(GraphStore(BASE), text) == [code]


def test_near_ids_are_named() -> None:
    store = GraphStore("+ TSK [TSK12]\n+ TSK [TSK13]")
    with pytest.raises(DocumentRefused) as error:
        store.mutate("~ [tsk12] ; a=b\n~ [TKS12] ; a=b\n~ [TSK2] ; a=b")
    assert [p.hint for p in error.value.problems] == ["is it TSK12?", "is it TSK12?", "is it TSK12?"]


def test_an_end_that_was_guessed_is_answered_with_a_label_and_never_with_an_edge() -> None:
    store = GraphStore("+ TSK [T1]\n+ M [mod]\n+ E1 [T1] --(r)--> [mod]")
    for text, hint in (
        ("+ TSK [NEW]\n+ [TSK1] --(r)--> [T1]", "label the new node: + KIND [NEW:x], then [NEW:x] is it"),
        ("+ [T1] --(r)--> [mode]", "is it mod?"),
        ("+ [T1] --(r)--> [E2]", "read it first: its id may have changed"),
    ):
        with pytest.raises(DocumentRefused) as refused:
            store.mutate(text)
        assert [(p.code, p.hint) for p in refused.value.problems] == [("no_such_node", hint)]


def test_labels_name_new_rows_anywhere_in_the_document() -> None:
    store = GraphStore(BASE)
    answer = store.mutate("+ [NEW:b] --(next)--> [NEW:a]\n+ TSK [NEW:a]\n+ NEW:link [NEW:a] --(owns)--> [M1]\n+ TSK [NEW:b]")
    assert answer.minted == {"#1": "E2", "a": "TSK1", "link": "E3", "b": "TSK2"}
    assert answer.lines == ["E2 [TSK2] --(next)--> [TSK1]", "TSK [TSK1]", "E3 [TSK1] --(owns)--> [M1]", "TSK [TSK2]"]


def test_kind_e_shares_the_edges_counter() -> None:
    assert GraphStore(BASE).mutate("+ E [NEW]\n+ [T1] --(a)--> [T2]\n+ E [NEW]").minted == {"#1": "E2", "#2": "E3", "#3": "E4"}


def test_an_edge_whose_end_goes_goes_with_it() -> None:
    store = GraphStore(BASE)
    answer = store.mutate("+ [T2] --(owns)--> [M1]\n- M1\n+ MOD [M1] ; path=b.py")
    assert answer.dropped == ["E1", "E2"]
    assert answer.lines == ["MOD [M1] ; path=b.py"]
    assert store.mutate("+ [T2] --(owns)--> [M1]").minted == {"#1": "E3"}


def test_ids_can_change_places() -> None:
    store = GraphStore(BASE)
    answer = store.mutate("~ [T1] ; id=X\n~ [T2] ; id=T1\n~ [X] ; id=T2")
    assert answer.lines == ["TSK [T2] ; goal=ship ; status=open ; prio=3", "TSK [T1] ; goal=test"]
    assert answer.dropped == []
    assert store.read("E1") == "E1 [T2] --(owns)--> [M1] ; note=core"


def test_an_edge_and_a_law_are_renamed() -> None:
    store = GraphStore(BASE, "LAW01 name=a")
    store.mutate("~ E1 ; id=link\n~ LAW01 ; id=LAW.two ; name=b")
    assert (store.read("link"), store.read("LAW.two")) == ("link [T1] --(owns)--> [M1] ; note=core", "LAW.two name=b")
    assert codes(store, "~ LAW.two ; id=rule") == ["parse_error"]


def test_merge_drops_doubles_and_loops_of_the_fold_and_keeps_old_loops() -> None:
    store = GraphStore(
        "+ A [a] ; x=1 ; y=2\n+ A [b] ; x=9\n+ A [c]\n+ [a] --(r)--> [c]\n+ [b] --(r)--> [c]\n+ [a] --(r)--> [b]\n+ [a] --(s)--> [a]\n+ [c] --(t)--> [a]"
    )
    answer = store.mutate("~ [a] ; id=b ; merge=true ; z=3")
    assert answer.lines == ["A [b] ; x=9 ; y=2 ; z=3"]
    assert answer.dropped == ["a", "E1", "E3"]
    assert [store.read(id) for id in ("E2", "E4", "E5")] == ["E2 [b] --(r)--> [c]", "E4 [b] --(s)--> [b]", "E5 [c] --(t)--> [b]"]


def test_settling_drops_rows_and_edges_that_waited_for_it() -> None:
    store = GraphStore(BASE, "~ E1 ; recycle=delete_on_settle\n+ TSK [T3] ; recycle=delete_on_settle\n+ [T3] --(next)--> [T2]")
    assert store.mutate("~ [T1] ; status=Settled").dropped == []
    assert store.mutate("~ [T1] ; status=settled\n~ [T3] ; status=settled").dropped == ["E1", "T3", "E2"]
    assert store.mutate("+ TSK [NEW] ; status=settled ; recycle=delete_on_settle").dropped == ["TSK1"]
    assert store.mutate("+ TSK [NEW]").minted == {"#1": "TSK2"}
    assert store.mutate("+ [T1] --(x)--> [T2] ; recycle=delete_on_settle").dropped == ["E3"]


def test_a_row_past_its_time_reads_as_absent_and_makes_way() -> None:
    store = GraphStore(BASE, "~ [T1] ; ttl=30m")
    assert store.read("T1") == "TSK [T1] ; goal=ship ; status=open ; prio=3 ; expires=2023-11-14T22:43:20Z"
    store.now_ms += 30 * 60_000
    assert (store.read("T1"), store.read("E1")) == (None, None)
    assert codes(store, "~ [T1] ; a=b") == ["not_found"]
    assert codes(store, "+ [T1] --(owns)--> [T2]") == ["no_such_node"]
    answer = store.mutate("+ TSK [T1] ; goal=again")
    assert (answer.lines, answer.dropped) == (["TSK [T1] ; goal=again"], ["E1"])
    assert store.mutate("+ [T1] --(owns)--> [M1]").minted == {"#1": "E2"}


def test_clearing_a_ttl_keeps_the_row_and_persistent_rows_that_expire_are_warned_of() -> None:
    store = GraphStore(BASE, "~ [T1] ; ttl=1s", "~ [T1] ; ttl=")
    assert store.read("T1") == "TSK [T1] ; goal=ship ; status=open ; prio=3"
    assert store.mutate("~ [T1] ; recycle=persistent ; ttl=1s").warnings == ["T1 is persistent and expires at 2023-11-14T22:13:21Z; expires= keeps it"]
    assert store.mutate("~ [T1] ; recycle=persistent ; expires=").warnings == []
    assert store.mutate("~ [T1] ; ttl=1s").lines == ["TSK [T1] ; goal=ship ; status=open ; prio=3 ; recycle=delete_on_expire ; expires=2023-11-14T22:13:21Z"]


def test_if_seq_refuses_with_the_changed_lines() -> None:
    store = GraphStore(BASE)
    store.mutate("~ [T1] ; prio=4", actor="ada")
    with pytest.raises(DocumentRefused) as error:
        store.mutate("~ [T2] ; a=b\n~ [T1] ; prio=9", if_seq=1)
    (problem,) = error.value.problems
    assert (problem.line, problem.code) == (2, "conflict")
    assert problem.message == "T1 changed at seq 2 by ada: TSK [T1] ; goal=ship ; status=open ; prio=4"
    assert error.value.code == "conflict"
    store.mutate("~ [T1] ; prio=9", if_seq=2)
    store.mutate("+ [T1] --(next)--> [T2]")
    assert codes(store, "- T1", if_seq=3) == ["conflict"]


def test_a_document_that_changes_nothing_has_no_facts() -> None:
    store = GraphStore(BASE)
    facts, answer = store.decide("~ [T1] ; status=open\n~ [T2]")
    assert facts == []
    assert answer.lines == ["TSK [T1] ; goal=ship ; status=open ; prio=3", "TSK [T2] ; goal=test"]


def test_add_and_update_are_narrower_doors() -> None:
    store = GraphStore(BASE)
    assert codes(store, "- E1\n~ [T1]\n+ TSK [NEW]", verb="add") == ["op_mode_mismatch"] * 2
    assert codes(store, "LAW01\nSCHEMA TSK\n+ [T1] --(a)--> [T2]\n~ [T1]", verb="update") == ["op_mode_mismatch"] * 3
    assert codes(store, "TSK [T1]", verb="add") == ["present_on_mutate"]
    store.mutate("LAW01\nSCHEMA relations ; names=owns", verb="add")


def test_rows_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    store = GraphStore(BASE)
    monkeypatch.setattr(limits, "ROWS_PER_SESSION", 5)
    store.mutate("+ TSK [NEW]")
    assert codes(store, "+ TSK [NEW]") == ["limit_exceeded"]
    assert codes(GraphStore("+ A [a]" + "".join(f" ; k{i}=1" for i in range(256))), "~ [a] ; more=1") == ["limit_exceeded"]


@pytest.mark.parametrize(
    ("stored", "number", "total"),
    [
        ("3", "2.5", "5.5"),
        ("0.1", "-0.1", "0"),
        ("-0.5", "0.5", "0"),
        ("007", "1", "8"),
        ("+5", "-10", "-5"),
        ("1.50", "0", "1.5"),
        ("100", "0", "100"),
        ("12345678901234567890", "1", "12345678901234567891"),
        ("0." + "0" * 60 + "1", "1", "1." + "0" * 60 + "1"),
        ("9" * 5000, "1", "1" + "0" * 5000),
        ("1e3", "1", None),
        ("", "1", None),
        ("abc", "1", None),
        ("１", "1", None),
    ],
)
def test_sums_are_exact_and_plain(stored: str, number: str, total: str | None) -> None:
    assert add_exact(stored, number) == total


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), ("7d", 604_800_000), ("30", None), ("1.5h", None), ("-1s", None), ("0m", None)]
)
def test_spans_have_units(text: str, ms: int | None) -> None:
    assert parse_ttl_ms(text) == ms


LINES = [
    '+ TSK [NEW:a] ; goal="a ; b" ; prio=1',
    "+ [NEW:a] --(next)--> [T2] ; note=x",
    "+ TSK [T9] ; ttl=30m",
    "+ TSK [NEW] ; recycle=delete_on_settle ; status=settled",
    "~ [T1] ; prio+=2.5 ; status=settled",
    "~ E1 ; note= ; weight=3",
    "~ [T1] --(owns)--> [M1] ; w-=1",
    "~ [T2] ; id=T3",
    "~ [T2] ; id=T1 ; merge=true",
    "- T1",
    "- [E1]",
    "LAW01 name=x ; cycle=on_add",
    "~ LAW01 ; name=",
    "SCHEMA TSK ; fields=id goal status prio",
    "SCHEMA relations ; names=owns next",
    "TSK [T1] ; goal=ship",
    "# note",
    "## Nodes",
    "@TSK: T1|x|y",
]
NOISE = [*';=-"\\[]\x00é ', *["+=", "NEW", "NEW:a", "T1", "E1", "id=", "merge=true", "--(", ")-->", "\\u0041", "…+9", "1e9"], ""]
SOAK_LINES = int(os.environ.get("PINFOLD_SOAK_LINES", "100_000")) // 5


def test_documents_of_lines_with_noise_in_them_are_done_or_refused_whole() -> None:
    rng = random.Random(4)
    done = lines = 0
    while lines < SOAK_LINES:
        store = GraphStore(BASE)
        for _ in range(60):
            document = [rng.choice(LINES) for _ in range(rng.randint(1, 4))]
            lines += len(document)
            for _ in range(rng.randint(0, 3)):
                place, at, cut = rng.randrange(len(document)), rng.randrange(40), rng.choice((0, 0, 1, 5))
                document[place] = document[place][:at] + rng.choice(NOISE) + document[place][at + cut :]
            before = store.state()
            try:
                store.mutate("\n".join(document), verb=rng.choice(("mutate", "mutate", "add", "update")))
                done += 1
            except DocumentRefused:
                assert store.state() == before
        assert parse_document("\n".join(store.lines())).problems == []
    assert SOAK_LINES // 50 < done < SOAK_LINES // 4
