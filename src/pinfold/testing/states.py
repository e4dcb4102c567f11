"""A whole session's state with its clock, as an engine keeps it but without one: for tests of what rests on what."""

from __future__ import annotations

from collections.abc import Iterable

from pinfold.dialect.parse import parse_document
from pinfold.entry import Entry, Fact, encode_entry
from pinfold.state import promises
from pinfold.state.inputs import Input, Rest, collect, parse_input, rest_on, settle
from pinfold.state.mutate import decide_mutate
from pinfold.state.resting import asserted_in, finish, lines_of
from pinfold.state.session import SessionState, apply
from pinfold.state.value import Stored


class StateStore:
    """One state; its clock stands still until `now_ms` is set."""

    def __init__(self, *documents: str) -> None:
        self.state = SessionState()
        self.now_ms = 1_700_000_000_000
        for document in documents:
            self.mutate(document)

    def append(self, facts: Iterable[Fact]) -> None:
        """Apply facts as one entry."""
        entry = Entry(self.state.seq + 1, self.state.hash, self.now_ms, None, None, list(facts))
        apply(self.state, entry, encode_entry(entry).hash)

    def mutate(self, text: str, *inputs: str) -> list[Fact]:
        """Apply a document whose rows rest on the inputs. Return its facts. Raises DocumentRefused."""
        state, batch = self.state, parse_document(text)
        facts, done = decide_mutate(state.graph, state.schema, batch, now_ms=self.now_ms)
        facts = finish(
            state,
            facts,
            now_ms=self.now_ms,
            inputs=[parse_input(given) for given in inputs] if inputs else None,
            asserted=asserted_in(batch, state.graph),
            lines=lines_of(batch, done.minted),
        )
        self.append(facts)
        return facts

    def set(self, key: str, value: Stored, *inputs: str | Input, expires_at_ms: int | None = None) -> list[Fact]:
        """Store a value that rests on the inputs. Return its facts. Raises Refused."""
        state = self.state
        facts, _ = promises.decide_set(state.silo, state.promises, state.recency, key, value, expires_at_ms, self.now_ms)
        rest_on(state, facts, key, [parse_input(given) if isinstance(given, str) else given for given in inputs], self.now_ms)
        self.append(facts)
        return facts

    def rests(self, name: str) -> list[Rest]:
        """Return what a dependent rests on, with the marks it noted."""
        return list(self.state.inputs.rests(name))

    def stale(self, *wanted: str) -> dict[str, list[str]]:
        """Return the stale ones of all dependents, or of these and what they rest on, each with its causes, in order of redoing."""
        verdict = settle(self.state.inputs, collect(self.state, wanted or None, self.now_ms))
        return {name: [f"{cause.name} {cause.what}" for cause in causes] for name, causes in verdict.causes.items()}
