"""The side of a session that knows what things rest on: declaring inputs, judging what went stale, and what to redo.

Judging reads the state under the lock and looks at files without it; nothing that is stored is ever executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold.caller import current_folder
from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.graph_session import Changed, GraphSession
from pinfold.state.inputs import Input

if TYPE_CHECKING:
    from pinfold.engine import Engine
    from pinfold.inputs import Beyond
    from pinfold.state.inputs import Verdict
    from pinfold.state.session import SessionState
    from pinfold.state.silo import Slot

WHY_ROWS = 500
"""Lines of one `why`: a larger tree says how much it left out."""


class Stale(msgspec.Struct, frozen=True, gc=False):
    """A dependent that can no longer be trusted, by its input name (slot:KEY, row:ID), and its root causes in words."""

    name: str
    because: tuple[str, ...]


class Ground(msgspec.Struct, frozen=True):
    """One line of `why`: a dependent (depth 0) or an input below it. what: what became of it, "" where it is as it was.

    again: it was opened further up already.
    """

    depth: int
    name: str
    what: str
    again: bool = False


class Why(msgspec.Struct, frozen=True):
    """What something rests on, as a tree in lines, and whether it still holds. superseded_by: the row that took its place."""

    name: str
    stale: bool
    because: tuple[str, ...]
    grounds: list[Ground]
    superseded_by: str = ""
    left_out: int = 0


class Conflict(msgspec.Struct, frozen=True):
    """Two or more live rows of a kind that claim one unique key."""

    kind: str
    key: dict[str, str]
    ids: list[str]


class InputsSession(GraphSession):
    """Inputs, staleness and supersession of a live session."""

    _engine: Engine

    # --- declaring ----------------------------------------------------------------------------------------------

    def note(self, *inputs: str | Input) -> list[Input]:
        """Return inputs as they are now, to be declared later: of work that begins now and is stored when it is done.

        Raises Refused `bad_input`, `no_such_input`, `superseded_input`.
        """
        from pinfold.state.inputs import resolve_inputs

        self._replica.catch_up()
        outside = self._marked(inputs)
        with self._replica.lock:
            return resolve_inputs(self._replica.state, outside, self._replica.now_ms())

    def _marked(self, inputs: Iterable[str | Input]) -> list[Input]:
        """Return declared inputs with the marks of what lies outside the session. Files are read: not under the lock."""
        from pinfold.inputs import marked, own_name

        name = self._replica.name
        return [own_name(given, name) for given in marked(inputs, self._beyond(), current_folder())]

    def _noted(self, key: str, inputs: list[str | Input]) -> list[Input]:
        """Return inputs as they are now, for work on key that begins now. Refuses what would be refused when it is done."""
        from pinfold.state.inputs import cycle_refusal, rest_on

        name = f"slot:{key}"
        if name in inputs:
            raise cycle_refusal([name, name])
        noted = self.note(*inputs)
        with self._replica.lock:
            rest_on(self._replica.state, [], key, noted, self._replica.now_ms())
        return noted

    def _inherited(self, key: str) -> list[Input] | None:
        """Return what the slot of key rests on, as it is now: work done again rests on the same. What is gone is left out."""
        from pinfold.state.resting import as_now

        rests = list(self._replica.state.inputs.rests(f"slot:{key}"))
        if not rests:
            return None
        fresh = self._fresh(rests)
        with self._replica.lock:
            state, now_ms = self._replica.state, self._replica.now_ms()
            return [found for rest in rests if (found := as_now(state, rest, fresh, now_ms)) is not None]

    def _fresh(self, rests: Iterable[tuple[str, str, Any]]) -> dict[str, Input]:
        """Return those inputs that lie outside the session, as they are now."""
        from pinfold.state.inputs import is_outside

        beyond = self._beyond()
        fresh: dict[str, Input] = {}
        for name, _, _ in rests:
            if is_outside(name):
                try:
                    fresh[name] = beyond.input(Input(name))
                except Refused:
                    continue  # gone, or superseded in its session: it no longer carries anything
        return fresh

    def _beyond(self) -> Beyond:
        from pinfold.inputs import Beyond

        return Beyond(self._engine)

    def set_version(self, name: str, value: str | None) -> None:
        """Say what a version is from now on: `prompt`, or `url:…` for an etag; None for no longer known. Journaled.

        What rests on `version:NAME=` another value is stale.
        """
        named = name if name.startswith(("version:", "url:")) else f"version:{name}"
        if named.endswith(":") or (value is not None and not value):
            raise Refused("a version needs a name and a value", code="bad_input", hint="prompt 7")

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], None]:
            if state.settings.extra.get(named) == value:
                return [], None
            return [{"f": "session.put", **({} if state.exists else {"created": now_ms}), named: value}], None

        self._turn(decide)

    # --- judging ------------------------------------------------------------------------------------------------

    def _verdict(self, wanted: Iterable[str] | None) -> Verdict:
        verdict: Verdict = self._beyond().verdict(self._replica, wanted)
        return verdict

    def _doubts(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return why dependents are stale, in words, for those of these that are."""
        given = self._replica.state.inputs.given
        wanted = [name for name in names if name in given] if given else ()
        if not wanted:
            return {}
        from pinfold.inputs import told

        causes, here = self._verdict(wanted).causes, current_folder()
        return {name: told(causes[name], here) for name in wanted if name in causes}

    def _because(self, key: str) -> tuple[str, ...]:
        """Return why the slot of key is stale, in words; () where it is not."""
        return self._doubts([f"slot:{key}"]).get(f"slot:{key}", ())

    def _unlike(self, slot: Slot, inputs: Sequence[Input]) -> tuple[str, ...]:
        """Return what of the inputs now declared differs from what a slot rests on, in words."""
        from pinfold.inputs import shown_name
        from pinfold.state.inputs import as_rests

        known = {name: mark for name, mark, _ in as_rests((slot.extra or {}).get("in"))}
        here = current_folder()
        words = [f"{shown_name(given.name, here)} added" for given in inputs if given.name not in known]
        words += [shown_name(given.name, here) for given in inputs if given.name in known and given.mark is not None and given.mark != known[given.name]]
        declared = {given.name for given in inputs}
        return tuple(words + [f"{shown_name(name, here)} no longer declared" for name in known if name not in declared])

    def stale(self, prefix: str = "") -> list[Stale]:
        """Return what can no longer be trusted, inputs before what rests on them; superseded rows are history and left out.

        prefix: only names that start so (`slot:`, `row:T`).
        """
        from pinfold.inputs import told

        replica = self._replica
        replica.catch_up()
        if replica.is_over() or not replica.state.inputs.given:
            return []
        verdict, here = self._verdict(None), current_folder()
        words: dict[Any, tuple[str, ...]] = {}
        found = []
        with replica.lock:
            now_ms = replica.now_ms()
            for name, causes in verdict.causes.items():
                if name.startswith(prefix) and self._stands(name, now_ms):
                    if causes not in words:
                        words[causes] = told(causes, here)
                    found.append(Stale(name, words[causes]))
        return found

    def _stands(self, name: str, now_ms: int) -> bool:
        """Return whether a dependent is there and was not superseded."""
        state = self._replica.state
        if name.startswith("slot:"):
            return state.silo.live(name[5:], now_ms) is not None
        return state.graph.live(name[4:], now_ms) is not None and name[4:] not in state.inputs.superseded

    def refresh_list(self) -> list[Stale]:
        """Return what to redo, in an order in which each comes after what it rests on. Nothing stored is executed."""
        return self.stale()

    def why(self, id_or_key: str) -> Why:
        """Return the tree of what a row or slot rests on, with what changed. A row is looked for first; slot:KEY and row:ID say which.

        Raises Refused `not_found`.
        """
        from pinfold.inputs import told

        replica = self._replica
        replica.catch_up()
        name = self._named(id_or_key)
        verdict, here = self._verdict([name]), current_folder()
        grounds: list[Ground] = []
        opened: set[str] = set()
        left_out = 0
        stack: list[tuple[int, str, str]] = [(0, name, "")]
        rests = replica.state.inputs.rests
        faults = {(dependent, cause.name): cause.what for dependent, causes in verdict.direct.items() for cause in causes}
        with replica.lock:
            while stack:
                depth, at, above = stack.pop()
                if len(grounds) >= WHY_ROWS:
                    left_out += 1
                    continue
                inner = list(dict.fromkeys(rest[0] for rest in rests(at)))
                what = faults.get((above, at), "") or ("stale" if at in verdict.causes else "")
                grounds.append(Ground(depth, at, what, at in opened and bool(inner)))
                if at not in opened:
                    opened.add(at)
                    stack.extend((depth + 1, below, at) for below in reversed(inner))
        by = replica.state.inputs.superseded.get(name[4:], "") if name.startswith("row:") else ""
        causes = verdict.causes.get(name, ())
        return Why(name, bool(causes), told(causes, here), grounds, by, left_out)

    def _named(self, id_or_key: str) -> str:
        """Return the input name of a row or slot that is there."""
        state, now_ms = self._replica.state, self._replica.now_ms()
        if not self._replica.is_over():
            for form in ("row:", "slot:"):
                bare = id_or_key.removeprefix(form)
                if id_or_key.startswith(("row:", "slot:")) and bare == id_or_key:
                    continue
                there = state.graph.live(bare, now_ms) if form == "row:" else state.silo.live(bare, now_ms)
                if there is not None:
                    return form + bare
        raise Refused(f"there is no row and no key {id_or_key!r}", code="not_found", hint="`pinfold stale` names what went stale", id=id_or_key)

    def _because_of(self, ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        given = self._replica.state.inputs.given
        names = [name for id in ids if (name := f"row:{id}") in given]
        return {name[4:]: because for name, because in self._doubts(names).items()} if names else {}

    # --- redoing and replacing ----------------------------------------------------------------------------------

    def reaffirm(self, *ids_or_keys: str) -> list[str]:
        """Say that these still hold, with their inputs as they are now: somebody looked. Returns the names that rest on anything.

        Inputs that are gone are left out from here on. Raises Refused `not_found`.
        """
        from pinfold.state.resting import decide_reaffirm

        replica = self._replica
        replica.catch_up()
        names = [self._named(given) for given in ids_or_keys]
        fresh = self._fresh([rest for name in names for rest in replica.state.inputs.rests(name)])
        done: list[str] = self._turn(lambda state, now_ms: decide_reaffirm(state, names, fresh, now_ms))
        return done

    def supersede(self, old: str, new: str) -> Changed:
        """Let a row take another's place: the old one leaves pin maps and lists, keeps its history, and what rests on it is stale.

        Raises Refused `no_such_row`, `supersede_cycle`.
        """
        from pinfold.recall import read
        from pinfold.state.resting import decide_supersede

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], int]:
            facts = decide_supersede(state, old, new, now_ms)
            return facts, state.seq + 1 if facts else state.seq

        seq: int = self._turn(decide)
        with self._replica.lock:
            view = self._view()
            found = read.get(view.graph, [old], now_ms=view.now_ms, schema=view.schema)
        return Changed(seq, {}, [item.line for item in found.items], [], [])

    def conflicts(self) -> list[Conflict]:
        """Return where two or more live rows claim a key that the schema declares unique."""
        from pinfold.state.inputs import unique_fields
        from pinfold.state.resting import find_conflicts

        with self._replica.lock:
            self._replica.catch_up()
            state = self._replica.state
            found = find_conflicts(state, self._replica.now_ms())
            return [Conflict(kind, dict(zip(unique_fields(state.schema, kind), key, strict=True)), ids) for kind, key, ids in found]
