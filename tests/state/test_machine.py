"""Silo and promises against a model of a few dicts, over whole sessions: sets, claims, expiry, eviction, reopening."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pinfold import Claimed, Hit, Memory, Miss, Pending, Refused
from pinfold.engine import Engine
from pinfold.fold import compact, load_state
from pinfold.journal.memory import MemoryJournal
from pinfold.state.session import state_hash
from pinfold.testing.sim import SimClock

NAMES = ("a", "b", "c")
KEYS = st.sampled_from(NAMES)
TTLS = st.sampled_from([None, None, 1, 5])


class SiloMachine(RuleBasedStateMachine):
    """The model: slots as (value, index, expiry) in order of use, claims as (token, lease end or None), outcomes."""

    @initialize(silo_size=st.sampled_from([None, None, 2]))
    def begin(self, silo_size):
        self.clock = SimClock()
        self.journal = MemoryJournal(self.clock)
        self.silo_size = silo_size
        self.slots: dict[str, list] = {}
        self.pending: dict[str, tuple] = {}
        self.settled: dict[str, tuple] = {}
        self.next_index = self.serial = self.last_token = 0
        self.old: list[Claimed] = []
        self.open()
        self.session.configure(silo_size=silo_size)

    def open(self):
        memory = Memory(journal=self.journal, background=False)
        memory._engine = Engine(self.journal, self.clock.monotonic, background=False)
        self.session = memory.session("work")

    # --- the model ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.clock.passed_ms

    def live(self, key):
        slot = self.slots.get(key)
        return slot if slot and (slot[2] is None or slot[2] > self.now) else None

    def held(self, key):
        claim = self.pending.get(key)
        return claim if claim and (claim[1] is None or claim[1] > self.now) else None

    def value(self) -> str:
        self.serial += 1
        return f"v{self.serial}"

    def store(self, key, value, ttl_s):
        """The model's set: (index, evicted)."""
        for gone in [k for k in self.slots if self.live(k) is None]:
            del self.slots[gone]
        evicted = []
        if key not in self.slots:
            while self.silo_size is not None and len(self.slots) >= self.silo_size:
                evicted.append(next(iter(self.slots)))
                del self.slots[evicted[-1]]
        index = self.slots[key][1] if key in self.slots else self.next_index
        self.next_index = max(self.next_index, index + 1)
        self.slots.pop(key, None)
        self.slots[key] = [value, index, None if ttl_s is None else self.now + ttl_s * 1000]
        return index, evicted

    def use(self, key):
        self.slots[key] = self.slots.pop(key)

    def refusal(self, run):
        seq = self.session.status().seq
        with pytest.raises(Refused) as refused:
            run()
        assert self.session.status().seq == seq
        return refused.value.code

    # --- rules --------------------------------------------------------------------------------------------------

    @rule(key=KEYS, ttl_s=TTLS)
    def set(self, key, ttl_s):
        value = self.value()
        stored = self.session.set(key, value, ttl_s=ttl_s)
        assert (stored.index, stored.evicted) == self.store(key, value, ttl_s)
        self.pending.pop(key, None)
        self.settled.pop(key, None)

    @rule(key=KEYS)
    def peek(self, key):
        found = self.session.peek(key)
        if slot := self.live(key):
            assert found == Hit(slot[0], slot[1])
            self.use(key)
        elif claim := self.held(key):
            assert found == Pending(key, None if claim[1] is None else (claim[1] - self.now) / 1000)
        elif self.settled.get(key, ("",))[0] == "payload":
            assert found == Hit(self.settled[key][1], None)
        else:
            assert found == Miss()

    @rule(key=KEYS, lease_s=st.sampled_from([1, 10]))
    def claim(self, key, lease_s):
        found = self.session.claim(key, lease_s)
        if slot := self.live(key):
            assert found == Hit(slot[0], slot[1])
            self.use(key)
        elif self.held(key):
            assert isinstance(found, Pending)
        elif self.settled.get(key, ("",))[0] == "payload":
            assert isinstance(found, Hit)
        else:
            assert isinstance(found, Claimed)
            assert found.token == self.last_token + 1
            self.last_token = found.token
            self.pending[key] = (found.token, self.now + lease_s * 1000)
            self.settled.pop(key, None)
            self.old.append(found)

    def settle(self, claim, run, apply):
        if self.pending.get(claim.key, (None,))[0] == claim.token:
            apply(run())
        else:
            assert self.refusal(run) in ("stale_token", "already_settled")

    @precondition(lambda self: self.old)
    @rule(data=st.data(), ttl_s=TTLS)
    def fulfil(self, data, ttl_s):
        claim, value = data.draw(st.sampled_from(self.old)), self.value()

        def kept(settled):
            assert (settled.index, settled.evicted) == self.store(claim.key, value, ttl_s)
            del self.pending[claim.key]

        was_held = self.pending.get(claim.key, (None,))[0] == claim.token
        self.settle(claim, lambda: self.session.fulfil(claim, value, ttl_s=ttl_s), kept)
        if not was_held and self.live(claim.key):
            self.use(claim.key)  # the refusal hands over the value that is there

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def reject(self, data):
        claim = data.draw(st.sampled_from(self.old))

        def rejected(_):
            del self.pending[claim.key]
            self.settled[claim.key] = ("rejected", "no")

        self.settle(claim, lambda: self.session.reject(claim, "no"), rejected)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def release(self, data):
        claim = data.draw(st.sampled_from(self.old))
        self.settle(claim, lambda: self.session.release(claim), lambda _: self.pending.pop(claim.key))

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def renew(self, data):
        claim = data.draw(st.sampled_from(self.old))

        def renewed(answer):
            until = max(self.now + 3_000, self.pending[claim.key][1])
            self.pending[claim.key] = (claim.token, until)
            assert answer.lease_left_s == (until - self.now) / 1000

        self.settle(claim, lambda: self.session.renew(claim, 3), renewed)

    @rule(key=KEYS)
    def settle_without_a_token(self, key):
        claim = self.pending.get(key)
        if claim is None or claim[0]:
            assert self.refusal(lambda: self.session.reject(key, "no")) in ("token_required", "unknown_promise", "stale_token", "already_settled")
        else:
            self.session.reject(key, "no")
            del self.pending[key]
            self.settled[key] = ("rejected", "no")

    @rule(key=KEYS)
    def register(self, key):
        self.session.register(key)
        if not self.live(key) and key not in self.pending and self.settled.get(key, ("",))[0] != "payload":
            self.pending[key] = (0, None)
            self.settled.pop(key, None)

    @rule(key=KEYS)
    def resolve(self, key):
        value = self.value()
        if self.pending.get(key, (None,))[0] == 0:
            self.session.resolve(key, value)
            del self.pending[key]
            self.settled[key] = ("payload", value)
        else:
            self.refusal(lambda: self.session.resolve(key, value))

    @rule(key=KEYS)
    def drop(self, key):
        there = self.live(key) is not None or self.settled.get(key, ("",))[0] == "payload"
        assert self.session.drop(key).keys == ([key] if there else [])
        if there:
            self.slots.pop(key, None)
            if self.settled.get(key, ("",))[0] == "payload":
                del self.settled[key]

    @rule()
    def flush(self):
        assert self.session.flush().cleared_count == sum(self.live(key) is not None for key in self.slots)
        self.slots.clear()

    @rule(ms=st.sampled_from([1, 999, 1_000, 9_000]))
    def pass_time(self, ms):
        self.clock.tick(ms)

    @rule()
    def reopen(self):
        self.session._replica.close()
        self.open()

    @rule()
    def compact(self):
        compact(self.journal, "work")

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def statuses_agree(self):
        for key in NAMES:
            known = self.session.promise(key)
            if slot := self.live(key):
                assert (known.status, known.payload) == ("resolved", slot[0])
            elif key in self.pending:
                assert known.status == "pending"
            elif key in self.settled:
                kind, what = self.settled[key]
                assert (known.status, known.payload, known.reason) == (("resolved", what, None) if kind == "payload" else ("rejected", None, what))
            else:
                assert known.status == "unknown"

    @invariant()
    def the_journal_gives_the_same_state(self):
        state = self.session._replica.state
        assert state_hash(load_state(self.journal, "work")) == state_hash(state)
        assert self.session.status().short_term["slots"] == sum(self.live(key) is not None for key in self.slots)


SiloMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


class TestSiloMachine(SiloMachine.TestCase):
    pytestmark = pytest.mark.requirement("model", "value-beats-promise", "lives-with-slot", "lru", "ttl", "tokens", "refused-writes-nothing")
