"""A deterministic simulation: several engines, one journal of any kind, a clock that lies, and everything that can go wrong.

`run_history(seed)` plays a random history and checks what must hold all along; the seed is the whole bug report.
Nothing here sleeps, starts a thread or reads the real clock.

Faults, each with its rate in `RATES`:

    crash_before     the process dies as it appends: nothing was written
    crash_after      the process dies after the append: written, never acknowledged
    fail_before      the append fails and says so; the process lives on
    reply_lost       the append is durable, its reply is an error with maybe_applied; the process lives on
    duplicate        the append is delivered twice; the second delivery must change nothing
    race             another engine does something between an engine's decision and its append, or while it loads
    stale_hint       version() answers what it answered before, although somebody appended
    lost_wake_up     wait() answers False although there is something to read
    torn_snapshot    half of a snapshot is kept under the hash of the whole; never two in a row
    crash_in_compact the process dies between saving a snapshot and trimming
    clock_jump       one engine's wall clock jumps forth or back, by seconds or hours; monotonic time goes on
    reopen           an engine is closed and opened anew

Also part of the histories, though no fault: leases that lapse in the middle of the work, owners that come back late,
retried request ids, ttl, eviction, flush, blobs, compaction, retention (in half of the histories a very small one), forks of
the present and the past, the end of a session and its next incarnation.

Checked, at every entry, at every answer, and at every few steps for all engines:

    seq counts without a gap, each entry names the hash before it, time never runs backwards
    one winner: a claim is granted only where no slot is live and no lease runs; tokens strictly rise
    a claimed promise is settled only under its own token, and at most once
    no token is handed out twice, so no work is owned by two within a lease
    an index is given once; a key with a live claim is never evicted
    what was acknowledged is in the journal, once; what was refused or failed is not
    a retried request_id gets the first answer
    a peek agrees with the journal: never an expired, dropped or older value
    after catching up all engines have the state hash of the full replay; snapshot + tail gives it too
    every blob that a live slot names can be read
    every retained entry is replayed to the state it had when it was the last; a fork is the state it was taken of
    `doctor` finds nothing but the snapshots that were torn on purpose
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from pinfold import limits
from pinfold.doctor import examine
from pinfold.engine import Engine, Waiter
from pinfold.entry import Entry, Record, decode_entry
from pinfold.errors import PinfoldError, Refused, Unavailable
from pinfold.fold import load_state
from pinfold.history import Past
from pinfold.journal.base import Conflict, Journal, Snapshot
from pinfold.journal.heads import Heads
from pinfold.journal.memory import MemoryJournal
from pinfold.memory import Memory
from pinfold.session import Session
from pinfold.state import promises as rules
from pinfold.state.outcomes import AlreadyApplied, Claimed, Hit, Miss, Pending
from pinfold.state.session import SessionState, apply, state_hash
from pinfold.state.value import Blob

RATES: dict[str, float] = {
    "crash_before": 0.01,
    "crash_after": 0.01,
    "fail_before": 0.02,
    "reply_lost": 0.03,
    "duplicate": 0.03,
    "race": 0.10,
    "stale_hint": 0.10,
    "lost_wake_up": 0.20,
    "torn_snapshot": 0.25,
    "crash_in_compact": 0.10,
    "clock_jump": 0.03,
    "reopen": 0.02,
}

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
SMALL_LIMITS = {"HISTORY_BYTES": 2_500, "REPLACED_VALUES_BYTES": 100_000}


class InvariantBroken(AssertionError):
    """Something that must hold did not. The message begins with the seed that shows it."""


class Crashed(BaseException):
    """The simulated process died. Like a real death it is no Exception: nothing in the engine may catch it."""


class SimClock:
    """Time that passes only when told to: one monotonic time for all, and a wall clock of one's own per `wall`."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.passed_ms = 0
        self._start_ms = start_ms

    def tick(self, ms: int) -> None:
        self.passed_ms += ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000

    def __call__(self) -> int:
        return self._start_ms + self.passed_ms

    def wall(self) -> WallClock:
        return WallClock(self)


class WallClock:
    """One machine's idea of the time, which may be wrong and may jump."""

    def __init__(self, true: SimClock) -> None:
        self._true = true
        self.offset_ms = 0

    def __call__(self) -> int:
        return self._true() + self.offset_ms


class Handle(MemoryJournal):
    """One process's handle on a MemoryJournal. As with a server, its version is one session's, and its own appends change nothing."""

    def __init__(self, store: MemoryJournal) -> None:
        self._store = store
        self._clock = store._clock
        self._kept = store._kept
        self._lock, self._changed = store._lock, store._changed
        self._heads = Heads(0)

    @property
    def _version(self) -> int:
        return self._store._version

    @_version.setter
    def _version(self, value: int) -> None:
        self._store._version = value

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        reply = super().append(session, after, after_hash, records, blobs)
        if reply is None:
            self._heads.appended(session, after_hash, records[-1].hash, 0.0)
        return reply

    def version(self, session: str, confirm: bool = False) -> int:
        kept = self._kept.get(session)
        return self._heads.looked(session, kept.records[-1].hash if kept is not None and kept.records else None, 0.0)


class FaultyJournal:
    """A handle on a journal, with the clock of its machine, and faults by `rates`. interfere: what another process does meanwhile."""

    def __init__(
        self,
        inner: Journal,
        clock: Callable[[], int],
        dice: random.Random | None = None,
        rates: Mapping[str, float] = {},
        interfere: Callable[[], None] = lambda: None,
        met: Counter[str] | None = None,
        dropping: Callable[[str], None] = lambda session: None,
    ) -> None:
        self._inner = inner
        self._dropping = dropping
        self._clock = clock
        self._dice = dice or random.Random(0)
        self._rates = dict(rates)
        self._interfere = interfere
        self._told: dict[str, Hashable] = {}
        self._doubts = 0
        self.met = met if met is not None else Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def now_ms(self) -> int:
        return self._clock()

    def quiet(self) -> None:
        """No faults from here on."""
        self._rates = {}

    def _strikes(self, fault: str) -> bool:
        if self._dice.random() < self._rates.get(fault, 0.0):
            self.met[fault] += 1
            return True
        return False

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        if self._strikes("race"):
            self._interfere()
        if self._strikes("crash_before"):
            raise Crashed
        if self._strikes("fail_before"):
            raise Unavailable("simulated: nothing was written", code="io_error")
        reply = self._inner.append(session, after, after_hash, records, blobs)
        if self._strikes("duplicate"):
            self._inner.append(session, after, after_hash, records, blobs)
        if self._strikes("crash_after"):
            raise Crashed
        if self._strikes("reply_lost"):
            self._doubts += 1
            raise Unavailable("simulated: the reply was lost", code="io_error", maybe_applied=True)
        return reply

    def drop(self, session: str) -> None:
        self._dropping(session)
        self._inner.drop(session)

    def version(self, session: str, confirm: bool = False) -> Hashable:
        if session not in self._told or confirm or not self._strikes("stale_hint"):
            self._told[session] = self._inner.version(session, confirm), self._doubts
        return self._told[session]

    def load_snapshots(self, session: str, limit: int | None = None) -> list[Snapshot]:
        found = self._inner.load_snapshots(session, limit)
        if self._strikes("race"):
            self._interfere()
        return found

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        kept = self._inner.load_snapshots(session)
        if (not kept or len(kept[0].body) > 1) and self._strikes("torn_snapshot"):
            snapshot = Snapshot(snapshot.seq, snapshot.hash, snapshot.body[:1], snapshot.blobs)
        self._inner.save_snapshot(session, snapshot)
        if self._strikes("crash_in_compact"):
            raise Crashed

    def wait(self, session: str, after: int, timeout_s: float) -> bool:
        return not self._strikes("lost_wake_up") and bool(self._inner.read(session, after))


class Oracle:
    """One journal seen from outside: every entry as it is appended, folded by the same rules and checked by others."""

    def __init__(self, journal_id: str) -> None:
        self.id = journal_id
        self.state = SessionState()
        self.records: list[Record] = []
        self.values: Counter[str | bytes] = Counter()
        self.hashes: dict[int, str] = {}

    def observe(self, journal: Journal) -> None:
        for record in journal.read(self.id, self.state.seq):
            entry = decode_entry(record)
            _must(entry.seq == self.state.seq + 1, f"a gap: entry {entry.seq} after {self.state.seq}")
            _must(entry.at_ms >= self.state.at_ms, f"entry {entry.seq}: time ran backwards by {self.state.at_ms - entry.at_ms} ms")
            for fact in entry.facts:
                self._check(fact, entry)
            apply(self.state, entry, record.hash)
            self.records.append(record)
            self.hashes[entry.seq] = state_hash(self.state)

    def _check(self, fact: dict[str, Any], entry: Entry) -> None:
        name, key, silo, promises = fact["f"], fact.get("k", ""), self.state.silo, self.state.promises
        before = promises.by_key.get(key)
        if name == "slot.put":
            self.values[fact.get("v") or fact.get("h") or fact.get("j") or ""] += 1
            old = silo.live(key, entry.at_ms)
            _must(fact["i"] == (silo.next_index if old is None else old.index), f"entry {entry.seq}: index {fact['i']} of {key} was given before")
        elif name == "slot.drop" and fact.get("why") == "evicted":
            _must(not promises.is_claimed(key, entry.at_ms), f"entry {entry.seq}: {key} was evicted under a live claim")
        elif name == "promise.put" and fact["s"] == rules.PENDING and fact.get("t"):
            if before is not None and before.status == rules.PENDING and before.token == fact["t"]:
                _must(fact["l"] >= (before.lease_until_ms or 0), f"entry {entry.seq}: renewing {key} shortened its lease")
            else:
                _must(fact["t"] > promises.last_token, f"entry {entry.seq}: token {fact['t']} of {key} does not rise")
                _must(not _held(before, entry.at_ms), f"entry {entry.seq}: {key} was claimed while somebody held it")
                _must(silo.live(key, entry.at_ms) is None, f"entry {entry.seq}: {key} was claimed although its value is there")
        elif name == "promise.put" and fact.get("t"):
            settles = before is not None and before.status == rules.PENDING and before.token == fact["t"]
            _must(settles, f"entry {entry.seq}: {key} was settled under token {fact['t']}, which does not hold it")


Life = tuple[str, int]
"""A journal, and how many of its name were dropped before it: once the last of a session is purged, its name begins anew."""


class Held(msgspec.Struct):
    """A claim that an engine's worker owns, as it believes."""

    claim: Claimed
    life: Life


class Request(msgspec.Struct):
    """A request to be sent again, and its first answer in each journal (a session's next incarnation knows nothing of it)."""

    request_id: str
    run: Callable[[Session], Any]
    value: str | bytes | None
    answers: dict[Life, Any] = {}


class Process:
    """One simulated process: a handle, an engine, a session, and what its workers hold in their hands."""

    def __init__(self, history: History, number: int) -> None:
        self.history = history
        self.number = number
        self.wall = history.clock.wall()
        self.refusal: Refused | None = None
        self.held: list[Held] = []
        self.waiting: list[tuple[str, Waiter]] = []
        self.open()

    def open(self) -> None:
        history = self.history
        self.held, self.waiting = [], []
        self.journal: Any = FaultyJournal(history.handle(), self.wall, history.dice, history.rates, lambda: history.interfere(self), history.met, history.bury)
        self.memory = Memory(journal=self.journal, background=False)  # no actor: two may write byte for byte the same
        self.memory._engine = Engine(self.journal, self.history.clock.monotonic, background=False)
        self.session = self.memory.session(history.NAME)

    def reopen(self) -> None:
        """Open again after a death, however often that takes."""
        while True:
            try:
                self.open()
                return
            except Crashed:
                continue

    def now_ms(self) -> int:
        return self.session._replica.now_ms()


class Report(msgspec.Struct, frozen=True):
    """What a history came to: steps, entries, executions granted, forks, entries that retention let go, faults met by name,
    the last state hash."""

    seed: int
    steps: int
    entries: int
    claims: int
    forks: int
    trimmed: int
    faults: dict[str, int]
    state_hash: str


class History:
    """One random history. `run` raises InvariantBroken."""

    NAME = "sim"
    KEYS = ("a", "b", "c", "d", "aa", "ab")

    def __init__(
        self, seed: int, engines: int = 3, steps: int = 120, rates: Mapping[str, float] = RATES, open_handle: Callable[[], Journal] | None = None
    ) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.clock = SimClock()
        self.handles: list[Journal] = []
        store = MemoryJournal(self.clock)
        self._open_handle = open_handle or (lambda: Handle(store))
        self.inner = self.handle()
        """The observer's own handle."""
        self.rates = rates
        self.met: Counter[str] = Counter()
        self.oracles: dict[str, Oracle] = {}
        self.buried: list[Oracle] = []
        self.acknowledged: set[str | bytes] = set()
        self.refused: set[str | bytes] = set()
        self.unsure: set[str | bytes | None] = set()
        self.tokens: dict[tuple[Life, int], str] = {}
        self.requests: list[Request] = []
        self.serial = self.forks = 0
        self.steps = steps
        self.limits = self.dice.choice([{}, SMALL_LIMITS])
        self.busy: list[Process] = []
        self.processes: list[Process] = []
        self.silo_size = self.dice.choice([None, None, 2, 4])
        self.processes += [Process(self, number) for number in range(engines)]

    def handle(self) -> Journal:
        """Return a new handle on the store; those of processes that died stay open until the end, as a server sees it."""
        self.handles.append(self._open_handle())
        return self.handles[-1]

    def run(self) -> Report:
        before = {name: getattr(limits, name) for name in self.limits}
        try:
            for name, value in self.limits.items():
                setattr(limits, name, value)
            return self._run()
        finally:
            for name, value in before.items():
                setattr(limits, name, value)
            for handle in self.handles:
                handle.close()

    def _run(self) -> Report:
        done = 0
        try:
            self._act(self.processes[0], lambda p: p.session.configure(silo_size=self.silo_size))
            for done in range(1, self.steps + 1):
                self.step(self.dice.choice(self.processes))
                if done % 20 == 0:
                    self.check_all()
            for process in self.processes:
                process.journal.quiet()
            self.check_all()
            self.check_store()
        except InvariantBroken as broken:
            raise InvariantBroken(f"seed {self.seed}, step {done}: {broken}") from broken
        except (PinfoldError, Crashed) as error:
            raise InvariantBroken(f"seed {self.seed}, step {done}: {type(error).__name__} must not come here: {error}") from error
        oracles = [*self.oracles.values(), *self.buried]
        last = max(oracles, key=lambda oracle: len(oracle.records))
        entries = sum(len(oracle.records) for oracle in oracles)
        trimmed = sum(records[0].seq - 1 for journal_id in self.oracles if (records := self.inner.read(journal_id, 0, 1)))
        return Report(self.seed, done, entries, len(self.tokens), self.forks, trimmed, dict(self.met), state_hash(last.state))

    # --- steps --------------------------------------------------------------------------------------------------

    def step(self, process: Process) -> None:
        self.clock.tick(self.dice.choice([0, 0, 1, 3, 20, 150, 700, 2_500]))
        if process.journal._strikes("clock_jump"):
            process.wall.offset_ms = self.dice.choice([0, -5_000, 5_000, -HOUR_MS, HOUR_MS])
        if process.journal._strikes("reopen"):
            process.reopen()
        action = self.dice.choices(self.ACTIONS, self.WEIGHTS)[0]
        action(self, process)

    def interfere(self, process: Process) -> None:
        """Let another process do something in the middle of this one's operation."""
        others = [other for other in self.processes if other not in self.busy and other is not process]
        if others:
            self.busy.append(process)
            try:
                self.observe()
                self.step(self.dice.choice(others))
            finally:
                self.busy.remove(process)

    def _act(self, process: Process, run: Callable[[Process], Any], value: str | bytes | None = None) -> Any:
        """Run one operation; note what became of it. None where it failed or was refused."""
        process.refusal = None
        try:
            answer = run(process)
        except Crashed:
            self.observe()
            self.unsure.add(value)
            process.reopen()
            return None
        except Refused as refused:
            self.observe()
            process.refusal = refused
            self._not_written(value)
            if refused.code == "session_ended":
                self._reopen_session(process)
            return None
        except Unavailable as error:
            self.observe()
            if error.maybe_applied:
                self.unsure.add(value)
            else:
                self._not_written(value)
            return None
        self.observe()
        if value is not None:
            self.acknowledged.add(value)
        return answer

    def _not_written(self, value: str | bytes | None) -> None:
        """Note that an attempt to write value wrote nothing; an earlier one, of a request sent again, may have."""
        if value is not None and value not in self.unsure:
            self.refused.add(value)

    def _reopen_session(self, process: Process) -> None:
        try:
            process.session = process.memory.session(self.NAME)
        except Crashed:
            process.reopen()

    def observe(self) -> None:
        for journal_id in self.inner.incarnations(self.NAME):
            self._oracle(journal_id).observe(self.inner)

    def bury(self, journal_id: str) -> None:
        """A journal is about to be dropped: what it says is looked at for the last time."""
        if journal_id in self.oracles:
            self.oracles[journal_id].observe(self.inner)
            self.buried.append(self.oracles.pop(journal_id))

    def _life(self, journal_id: str) -> Life:
        return journal_id, sum(oracle.id == journal_id for oracle in self.buried)

    def _oracle(self, journal_id: str) -> Oracle:
        return self.oracles.setdefault(journal_id, Oracle(journal_id))

    def _value(self, large: bool = False) -> tuple[Any, str | bytes]:
        """Return a value nobody has used, and what it is known by in the journal."""
        self.serial += 1
        text = f"v{self.serial}"
        if not large:
            return text, text
        body = text.encode() + bytes(40_000)
        return body, sha256(body).digest()

    def _key(self) -> str:
        return self.dice.choice(self.KEYS)

    def set(self, process: Process) -> None:
        key, (value, known) = self._key(), self._value(large=self.dice.random() < 0.1)
        ttl_s = self.dice.choice([None, None, 0.5, 5.0])
        stored = self._act(process, lambda p: p.session.set(key, value, ttl_s=ttl_s), known)
        if stored is not None:
            self._stands(process, key, known, stored.index)

    def _stands(self, process: Process, key: str, known: str | bytes, index: int | None) -> None:
        """An acknowledged write is the latest entry's doing: the journal must hold it under the index that was answered."""
        slot = self._oracle(process.session._id).state.silo.slots.get(key)
        _must(slot is not None, f"{key} was acknowledged and is not there")
        assert slot is not None
        held = slot.value.sha256 if isinstance(slot.value, Blob) else slot.value
        _must(held == known and slot.index == index, f"{key} was acknowledged as {known!r} [{index}], the journal says {held!r} [{slot.index}]")

    def request(self, process: Process) -> None:
        """A set or claim with a request_id, to be sent again later."""
        key, (value, known) = self._key(), self._value()
        request_id = f"r{self.serial}"
        if self.dice.random() < 0.5:
            request = Request(request_id, lambda s: s.set(key, value, request_id=request_id), known)
        else:
            request = Request(request_id, lambda s: s.claim(key, 2.0, request_id=request_id), None)
        self.requests.append(request)
        self._send(process, request)

    def retry(self, process: Process) -> None:
        if self.requests:
            self._send(process, self.dice.choice(self.requests))

    def _send(self, process: Process, request: Request) -> None:
        journal_id = process.session._id
        life = self._life(journal_id)
        known = request.request_id in self._oracle(journal_id).state.requests
        self.refused.discard(request.value or "")  # this attempt may succeed
        answer = self._act(process, lambda p: request.run(p.session), request.value)
        _must(not (known and isinstance(answer, (Hit, Pending))), f"{request.request_id} was applied, and its retry answered {answer}")
        if answer is None or isinstance(answer, (AlreadyApplied, Hit, Pending)) or self._life(process.session._id) != life:
            return  # nobody knows, or nothing was written: a retry decides
        first = request.answers.setdefault(life, answer)
        _must(answer == first, f"{request.request_id} was answered {first} and then {answer}")
        if isinstance(answer, Claimed) and (life, answer.token) not in self.tokens:
            self._won(process, answer, settled_since=known)

    def claim(self, process: Process) -> None:
        key, lease_s = self._key(), self.dice.choice([0.2, 1.0, 10.0])
        answer = self._act(process, lambda p: p.session.claim(key, lease_s))
        if isinstance(answer, Claimed):
            self._won(process, answer)
        elif isinstance(answer, Pending):
            waiter = Waiter(lambda: None)
            process.session._replica.add_waiter(key, waiter)
            process.waiting.append((key, waiter))

    def _won(self, process: Process, claim: Claimed, settled_since: bool = False) -> None:
        journal_id = process.session._id
        life = self._life(journal_id)
        _must((life, claim.token) not in self.tokens, f"token {claim.token} of {claim.key} was handed out twice")
        self.tokens[life, claim.token] = claim.key
        promise = self._oracle(journal_id).state.promises.by_key.get(claim.key)
        _must(settled_since or (promise is not None and promise.token == claim.token), f"the claim of {claim.key} is not in the journal")
        process.held.append(Held(claim, life))

    def settle(self, process: Process) -> None:
        """A worker comes back with its result, in time or long after its lease."""
        if not process.held:
            return
        held = process.held.pop(self.dice.randrange(len(process.held)))
        session, claim = process.session, held.claim
        if held.life != self._life(session._id):
            return
        value, known = self._value(large=self.dice.random() < 0.1)
        how = self.dice.random()
        if how < 0.6:
            self._fulfil(process, claim.key, claim.token, value, known)
        elif how < 0.8:
            self._act(process, lambda p: p.session.reject(claim, f"failed {known!r}"))
        else:
            self._act(process, lambda p: p.session.release(claim))

    def _fulfil(self, process: Process, key: str, token: int | None, value: Any, known: str | bytes) -> None:
        session = process.session
        settled = self._act(process, lambda p: p.session.fulfil(key, value, token=token), known)
        if settled is not None:
            self._stands(process, key, known, settled.index)
        elif known in self.refused and process.session is session and process.refusal is not None and process.refusal.code != "session_ended":
            state = self._oracle(session._id).state
            try:
                rules._held(state.silo, state.promises, key, token, process.now_ms())
            except Refused as refused:
                _must(refused.code == process.refusal.code, f"fulfil of {key} was refused with {process.refusal.code}, the journal says {refused.code}")
            else:
                raise InvariantBroken(f"fulfil of {key} was refused with {process.refusal.code}, the journal would have it")

    def renew(self, process: Process) -> None:
        held = [h for h in process.held if h.life == self._life(process.session._id)]
        if held:
            claim = self.dice.choice(held).claim
            self._act(process, lambda p: p.session.renew(claim, 3.0))

    def intrude(self, process: Process) -> None:
        """Somebody settles without the right token: refused, unless no claim is there."""
        key, (value, known) = self._key(), self._value()
        token = self.dice.choice([None, 1, 10_000])
        self._fulfil(process, key, token, value, known)

    def register(self, process: Process) -> None:
        key = self._key()
        if self._act(process, lambda p: p.session.register(key)) is not None and self.dice.random() < 0.5:
            self._act(process, lambda p: p.session.resolve(key, "payload"))

    def remove(self, process: Process) -> None:
        how = self.dice.random()
        if how < 0.6:
            self._act(process, lambda p: p.session.drop(self._key()))
        elif how < 0.8:
            self._act(process, lambda p: p.session.drop(prefix="a"))
        else:
            self._act(process, lambda p: p.session.flush())

    def peek(self, process: Process) -> None:
        key = self._key()
        session = process.session
        process.journal._told.clear()  # this look is not a stale one
        rates, process.journal._rates = process.journal._rates, {}
        try:
            found = session.peek(key)
            again = session.promise(key)
        finally:
            process.journal._rates = rates
        oracle = self.oracles.get(session._id)
        if oracle is None or oracle.state.is_over(process.now_ms()):
            _must(isinstance(found, Miss), f"{key} was found in a session that is not there")
            return
        truth = rules.look(oracle.state.silo, oracle.state.promises, key, process.now_ms())
        if truth is None:
            _must(isinstance(found, Miss), f"peek of {key} said {found}, the journal knows nothing")
        elif isinstance(truth, rules.Promise) and truth.payload is None:
            _must(isinstance(found, Pending) and again.status == rules.PENDING, f"peek of {key} said {found}, the journal says pending")
        else:
            stored = truth.payload if isinstance(truth, rules.Promise) else truth.value
            value = session._replica.value_of(stored) if stored is not None else None
            _must(isinstance(found, Hit) and found.value == value, f"peek of {key} said {found}, the journal says {value!r}")
            _must(again.status == rules.RESOLVED and again.payload == value, f"promise of {key} said {again}, the journal says {value!r}")

    def follow(self, process: Process) -> None:
        """What a watcher does; then look after those who wait: woken, or awake by themselves once the lease has lapsed."""
        replica = process.session._replica
        if process.journal.wait(replica.id, replica.state.seq, 0.0):
            replica.read_on()
        for key, waiter in list(process.waiting):
            lapsed = not replica.state.promises.is_claimed(key, process.now_ms())
            if (waiter.outcome is not None or lapsed) and (key, waiter) in process.waiting:  # a death in between empties it
                process.waiting.remove((key, waiter))
                replica.remove_waiter(key, waiter)
                if lapsed and self.dice.random() < 0.7:
                    self.claim(process)

    def compact(self, process: Process) -> None:
        if self.dice.random() < 0.1:
            self.clock.tick(self.dice.choice([2 * HOUR_MS, 25 * HOUR_MS, 33 * 24 * HOUR_MS]))
        if self.dice.random() < 0.3:
            self._act(process, lambda p: p.memory.compact())
        else:
            self._act(process, lambda p: p.session._replica.compact() if p.session._replica.state.exists else None)

    def fork(self, process: Process) -> None:
        """Fork the session as it is or was, look at the fork, write to it, end it."""
        hashes = self._oracle(process.session._id).hashes
        self.serial += 1
        name = f"fork{self.serial}"  # nobody else's
        wanted_seq = self.dice.choice([None, self.dice.randint(1, max(hashes, default=1))])

        def forked(process: Process) -> Session:
            try:
                return process.memory.fork(self.NAME, name, at=wanted_seq)
            except Refused as refused:
                first = refused.fields.get("first_seq", 0)
                _must(refused.code != "history_gone" or (wanted_seq is not None and wanted_seq < first), f"a fork at {wanted_seq} was refused, {first} is kept")
                raise

        fork = self._act(process, forked)
        if fork is None:
            return
        self.forks += 1
        state = fork._replica.state
        source = process.memory._engine._replicas[self.NAME].id  # by now it may be another life than process.session's
        seq = state.settings.extra["fork_seq"]
        if self.inner.read(source, 0, 1)[0].seq > seq:
            return  # trimmed since
        then = Past(self.inner, source).at(seq)
        wanted = {key: slot.value for key, slot in then.silo.slots.items()}
        found = {key: slot.value for key, slot in state.silo.slots.items()}
        lost = [key for key, value in wanted.items() if key not in found and not isinstance(value, Blob)]
        _must(not lost and all(wanted.get(key) == value for key, value in found.items()), f"the fork of {seq} holds {found}, not {wanted}")
        _must(all(self.inner.get_blob(fork._id, v.sha256) is not None for v in found.values() if isinstance(v, Blob)), "a fork lacks a large value")
        self._act(process, lambda p: fork.set("mine", "1"))
        self._act(process, lambda p: p.memory.end(name))

    def end(self, process: Process) -> None:
        if self.dice.random() < 0.3:
            self._act(process, lambda p: p.memory.end(self.NAME))
            self._act(process, lambda p: p.memory.purge())  # not every store does it by itself
            self._reopen_session(process)

    ACTIONS: tuple[Callable[[History, Process], None], ...] = (
        set,
        request,
        retry,
        claim,
        settle,
        renew,
        intrude,
        register,
        remove,
        peek,
        follow,
        compact,
        fork,
        end,
    )
    WEIGHTS = (12, 5, 5, 20, 14, 4, 3, 3, 5, 14, 8, 4, 1, 1)

    # --- checks -------------------------------------------------------------------------------------------------

    def check_all(self) -> None:
        """All engines agree with the full replay; snapshot + tail does; nothing acknowledged is lost, nothing refused is there."""
        self.observe()
        for journal_id, oracle in self.oracles.items():
            expected = state_hash(oracle.state)
            if self.inner.info(journal_id) is None:
                continue  # nothing was written yet
            _must(state_hash(load_state(self.inner, journal_id)) == expected, f"{journal_id}: snapshot + tail differ from the full replay")
            for slot in oracle.state.silo.slots.values():
                if isinstance(slot.value, Blob):
                    _must(self.inner.get_blob(journal_id, slot.value.sha256) is not None, f"{journal_id}: a large value in use was collected")
            past = Past(self.inner, journal_id)
            for record in self.inner.read(journal_id, 0):
                _must(state_hash(past.at(record.seq)) == oracle.hashes[record.seq], f"{journal_id}: entry {record.seq} is replayed to another state")
            for process in self.processes:
                replica = process.session._replica
                if replica.id == journal_id:
                    replica.seen = None
                    rates, process.journal._rates = process.journal._rates, {}
                    try:
                        replica.catch_up()
                    finally:
                        process.journal._rates = rates
                    _must(state_hash(replica.state) == expected, f"{journal_id}: process {process.number} differs from the full replay")
        written: Counter[str | bytes] = Counter()
        for oracle in [*self.oracles.values(), *self.buried]:
            written += oracle.values
        for value in self.acknowledged:
            _must(written[value] >= 1, f"{value!r} was acknowledged and is in no journal")
        for value in self.refused - self.acknowledged:
            _must(written[value] == 0, f"{value!r} was refused and is in the journal")
        for request in self.requests:
            if request.value is not None and len(self.oracles) + len(self.buried) == 1:
                _must(written[request.value] <= 1, f"{request.request_id} was applied {written[request.value]} times")

    def check_store(self) -> None:
        """Doctor looks at all of it; a torn snapshot was our own doing."""
        for finding in examine(self.inner).findings:
            _must(not finding.damage or finding.code == "torn_snapshot", f"doctor: {finding.session}: {finding.message}")


def run_history(seed: int, engines: int = 3, steps: int = 120, rates: Mapping[str, float] = RATES, open_handle: Callable[[], Journal] | None = None) -> Report:
    """Play the history of this seed. Raises InvariantBroken, whose message begins with the seed.

    open_handle: opens a handle on an empty store, for each process and the observer; default a journal in RAM. Every backend gives
    the same report for one seed.
    """
    return History(seed, engines, steps, rates, open_handle).run()


def _held(promise: rules.Promise | None, at_ms: int) -> bool:
    """The oracle's own idea of a live owner, so that a wrong rule does not excuse itself."""
    return promise is not None and promise.status == rules.PENDING and (promise.lease_until_ms is None or promise.lease_until_ms > at_ms)


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantBroken(otherwise)
