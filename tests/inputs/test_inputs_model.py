"""What is stale, against a model that knows contents and nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinfold import Memory, Session
from pinfold.errors import PinfoldError
from pinfold.state.inputs import Inputs
from pinfold.state.session import decode_snapshot, encode_snapshot

SLOTS = [f"k{n}" for n in range(5)]
ROWS = [f"R{n}" for n in range(6)]


class Model:
    """Contents by name, and for each dependent what its inputs held when it was made: (origin, input) -> content."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.rests: dict[str, dict[tuple[str, str], Any]] = {}
        self.superseded: dict[str, str] = {}

    def is_stale(self, name: str) -> bool:
        return any(self._is_broken(name, source, held) for (_, source), held in self.rests.get(name, {}).items())

    def _is_broken(self, name: str, source: str, held: Any) -> bool:
        if source not in self.content or self.content[source] != held or self.is_stale(source):
            return True
        by = source
        while by in self.superseded:
            by = self.superseded[by]
            if by == name:
                return False
        return source in self.superseded

    def reaches(self, start: str, goal: str) -> bool:
        seen, todo = set(), [start]
        while todo:
            at = todo.pop()
            if at == goal:
                return True
            if at not in seen:
                seen.add(at)
                todo += [source for _, source in self.rests.get(at, {})]
        return False

    def stale(self) -> set[str]:
        return {name for name in self.rests if name in self.content and name not in self.superseded and self.is_stale(name)}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "plain", "drop", "row", "patch", "delete", "derive", "derive", "assert", "cut", "supersede", "rename", "reload"]),
        st.integers(0, 10),
        st.integers(0, 10),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.requirement("staleness")
def test_what_is_stale_is_what_the_model_says(steps: list[tuple[str, int, int, int]]) -> None:
    with Memory("memory://", background=False) as memory:
        session, model = memory.session("m"), Model()
        ids = list(ROWS)
        for number, (verb, a, b, c) in enumerate(steps):
            _do(session, model, ids, verb, a, b, c, number)
            assert {row.name for row in session.stale()} == model.stale(), (verb, a, b, c)
            for row in session.stale():
                gone = [cause for cause in row.because if cause.endswith(" gone")]
                assert gone or not any(source not in model.content for _, source in model.rests[row.name]), "an absence was not told"
        _check_index(session)
        _check_order(session, model)


def _do(session: Session, model: Model, ids: list[str], verb: str, a: int, b: int, c: int, number: int) -> None:
    row, other, key = ids[a % len(ids)], ids[b % len(ids)], f"slot:{SLOTS[a % len(SLOTS)]}"
    name, source = f"row:{row}", f"row:{other}"
    if verb in ("set", "plain"):
        inputs = [] if verb == "plain" else [f"slot:{SLOTS[b % len(SLOTS)]}", source][: c + 1] or [source]
        refused = any(i not in model.content or i in model.superseded for i in inputs if i != key) or any(model.reaches(i, key) for i in inputs)
        error = _refusal(lambda: session.set(key[5:], f"v{c}", inputs=inputs or None))
        assert refused is (error is not None)
        if error is not None:
            assert error.code in ("no_such_input", "superseded_input", "input_cycle")
            return
        model.content[key] = c
        model.rests[key] = {("", i): model.content[i] for i in inputs}
    elif verb == "drop":
        session.drop(key[5:])
        model.content.pop(key, None)
        model.rests.pop(key, None)
    elif verb == "row" and name not in model.content:
        session.mutate(f"+ T [{row}] ; a={c}")
        model.content[name] = c
    elif verb == "patch" and name in model.content:
        session.mutate(f"~ [{row}] ; a={c}")
        model.content[name] = c
    elif verb == "delete" and name in model.content:
        session.mutate(f"- {row}")
        del model.content[name]
        model.rests.pop(name, None)
        model.superseded.pop(name, None)
        for dependent, rests in model.rests.items():
            for origin, of in list(rests):
                if origin == "edge" and of == name and dependent in model.content:
                    held = rests.pop((origin, of))
                    rests.setdefault(("", of), held)
    elif verb == "derive" and name in model.content and source in model.content and ("edge", source) not in model.rests.get(name, {}):
        refused = model.reaches(source, name)
        error = _refusal(lambda: session.mutate(f"+ [{row}] --(derived_from)--> [{other}]"))
        assert refused is (error is not None)
        if error is not None:
            assert error.code == "input_cycle" and error.path[0] == error.path[-1]
            return
        model.rests.setdefault(name, {})["edge", source] = model.content[source]
    elif verb == "assert" and ("edge", source) in model.rests.get(name, {}):
        session.mutate(f"~ [{row}] --(derived_from)--> [{other}]")
        model.rests[name]["edge", source] = model.content[source]
    elif verb == "cut" and ("edge", source) in model.rests.get(name, {}):
        session.mutate(f"- {_edge(session, row, other)}")
        del model.rests[name]["edge", source]
    elif verb == "supersede" and name in model.content and source in model.content:
        ring, by = name == source, source
        while by in model.superseded:
            by = model.superseded[by]
            ring = ring or by == name
        error = _refusal(lambda: session.supersede(row, other))
        assert ring is (error is not None)
        if error is not None:
            assert error.code == "supersede_cycle"
            return
        model.superseded[name] = source
    elif verb == "rename" and name in model.content and name not in model.superseded and name not in model.superseded.values():
        new = f"N{number}"
        session.mutate(f"~ [{row}] ; id={new}")
        ids[ids.index(row)] = new
        model.content[f"row:{new}"] = model.content.pop(name)
        if name in model.rests:
            model.rests[f"row:{new}"] = model.rests.pop(name)
        for rests in model.rests.values():
            if ("edge", name) in rests:
                rests["edge", f"row:{new}"] = rests.pop(("edge", name))
    elif verb == "reload":
        session._replica.reload()


def _refusal(write: Callable[[], Any]) -> PinfoldError | None:
    try:
        write()
    except PinfoldError as error:
        return error
    return None


def _edge(session: Session, src: str, dst: str) -> str:
    edge = session._replica.state.graph.edge_between(src, "derived_from", dst)
    assert edge is not None
    return edge.id


def _check_index(session: Session) -> None:
    """The index kept by apply is the one that a snapshot gives."""
    state = session._replica.state
    loaded = decode_snapshot(encode_snapshot(state)).inputs
    built = Inputs.build(state.silo, state.graph, state.schema)
    for other in (loaded, built):
        assert other.given == state.inputs.given
        assert other.dependents == state.inputs.dependents
        assert other.superseded == state.inputs.superseded
        assert other.on == state.inputs.on


def _check_order(session: Session, model: Model) -> None:
    """What is to be redone comes after what it rests on."""
    names = [row.name for row in session.refresh_list()]
    for at, name in enumerate(names):
        assert not {source for _, source in model.rests[name]} & set(names[at:])


@pytest.mark.requirement("staleness")
def test_ten_thousand_rows_and_what_changes_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(6)
    count = 10_000
    rests: dict[int, list[int]] = {n: sorted({rng.randrange(max(0, n - 300), n) for _ in range(rng.choice((0, 1, 1, 2)))}) for n in range(1, count)}
    with Memory("memory://", background=False) as memory:
        session = memory.session("m")
        session.mutate("\n".join(f"+ T [T{n}] ; a={n}" for n in range(count)))
        edges = [f"+ [T{n}] --(derived_from)--> [T{m}]" for n, inner in rests.items() for m in inner]
        for at in range(0, len(edges), 5000):
            session.mutate("\n".join(edges[at : at + 5000]))
        assert session.stale() == []
        changed, gone = set(rng.sample(range(count), 20)), set(rng.sample(range(count), 10))
        session.mutate("\n".join([*(f"~ [T{n}] ; a=new" for n in changed - gone), *(f"- T{n}" for n in gone)]))
        broken = changed | gone
        wanted: set[int] = set()
        for n in range(count):  # inputs have lower numbers
            if any(m in broken or m in wanted for m in rests.get(n, ())):
                wanted.add(n)
        began = time.process_time()
        found = {int(row.name[5:]): row.because for row in session.stale()}
        spent_ms = (time.process_time() - began) * 1000
        assert set(found) == wanted - gone
        assert all(any(f"T{m} gone" in found[n] for m in rests[n] if m in gone) for n in found if gone & set(rests[n]))
        with capsys.disabled():
            print(f"\n  {count} rows, {len(edges)} inputs: {len(found)} stale of {len(broken)} changes in {spent_ms:.0f} ms of processor time")


def test_ten_thousand_dependents_of_one_change(capsys: pytest.CaptureFixture[str]) -> None:
    count = 10_000
    with Memory("memory://", background=False) as memory:
        session = memory.session("m")
        session.mutate("\n".join(["+ T [X] ; a=1", *(f"+ T [T{n}]" for n in range(count - 1))]))
        for at in range(0, count - 1, 5000):
            session.mutate("\n".join(f"+ [T{n}] --(derived_from)--> [X]" for n in range(at, min(at + 5000, count - 1))))
        session.mutate("~ [X] ; a=2")
        times = []
        for _ in range(5):
            began = time.process_time()
            found = session.stale()
            times.append((time.process_time() - began) * 1000)
        assert len(found) == count - 1 and {row.because for row in found} == {("X",)}
        with capsys.disabled():
            print(f"\n  {count - 1} dependents of one change: {min(times):.0f} ms of processor time (best of 5), {sorted(times)[2]:.0f} ms (median)")


def test_a_chain_of_thousands_needs_no_recursion() -> None:
    with Memory("memory://", background=False) as memory:
        session = memory.session("m")
        count = 3_000
        session.mutate("\n".join(f"+ T [T{n}] ; a=1" for n in range(count)))
        session.mutate("\n".join(f"+ [T{n}] --(derived_from)--> [T{n - 1}]" for n in range(1, count)))
        session.mutate("~ [T0] ; a=2")
        assert [row.name for row in session.refresh_list()] == [f"row:T{n}" for n in range(1, count)]
        why = session.why(f"T{count - 1}")
        assert why.because == ("T0",) and why.left_out
        with pytest.raises(PinfoldError) as error:
            session.mutate(f"+ [T0] --(derived_from)--> [T{count - 1}]")
        assert error.value.code == "input_cycle" and len(error.value.path) == count + 1


@pytest.mark.requirement("nothing-declared")
def test_where_nothing_is_declared_nothing_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted: the index is never written, no document is looked at twice, nothing is judged."""
    from pinfold import inputs as outside
    from pinfold.state import inputs as rules
    from pinfold.state import resting

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("work was done for inputs that nobody declared")

    for module, name in ((resting, "finish"), (rules, "collect"), (rules, "settle"), (rules, "content_mark"), (rules, "slot_mark"), (outside, "Beyond")):
        monkeypatch.setattr(module, name, never)
    with Memory("memory://", background=False) as memory:
        session = memory.session("m")
        for n in range(50):
            session.set(f"k{n}", "v", ttl_s=60 if n % 2 else None)
            assert session.peek(f"k{n}").hit
            assert session.once(f"o{n}", lambda: 1) == 1
        session.mutate("\n".join(["SCHEMA T ; fields=id a", *(f"+ T [T{n}] ; a=1" for n in range(50)), "+ [T1] --(depends_on)--> [T2]"]))
        session.mutate("~ [T3] ; a=2\n- T4\n~ [T5] ; id=T500")
        session.pin_map("T1")
        session.find("T")
        session.undo(session.status().seq)
        session._replica.reload()
        assert session._replica.state.inputs.work == 0 and not session._replica.state.inputs.on
