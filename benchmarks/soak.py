"""python -m benchmarks.soak [--seconds N] [--seed N] [--histories N]: everything at once on one SQLite store, for a given time.

Several processes, each with plain threads and an event loop, race for the same work, overwrite values, store large ones, fork
sessions, look at the past, erase and compact, under limits so small that retention never rests. All but one of them are killed
(SIGKILL) at random moments and begun anew; some fork. A note is kept of everything acknowledged, in files that pinfold does not
know. Every so often all of them are parked and looked at:

    no ack lost          a value is never older than the last that was acknowledged
    single winner        all callers of one piece of work got one value, and only a killed owner's work is done again
    equal hashes         every process has the state that the store folds to
    whole                `pinfold doctor` finds nothing, and every retained entry can be replayed
    bounded              the file, and the memory of the process that is never killed, stop growing

The seed decides who does what and who is killed; the kernel decides when. Exit status 1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401  before anything forks, as in async_session.py
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pinfold import Hit, Memory, limits
from pinfold.doctor import examine
from pinfold.entry import blake2b
from pinfold.errors import Busy, JournalCorrupt, PinfoldError, Refused, Unavailable
from pinfold.fold import load_state
from pinfold.history import Past
from pinfold.journal.sqlite import SqliteJournal
from pinfold.state.session import state_hash

SESSIONS = ("race", "acks", "large", "graph", "lru")
SMALL = {
    "HISTORY_BYTES": 64 * limits.KIB,
    "SNAPSHOT_MIN_ENTRIES": 256,
    "SNAPSHOT_MIN_BYTES": 32 * limits.KIB,
    "REPLACED_VALUES_BYTES": 2 * limits.MIB,
    "SETTLED_KEPT_COUNT": 500,
    "BLOB_GRACE_S": 5,
    "ENDED_SESSION_KEPT_S": 20,
    "TOUCH_INTERVAL_S": 5.0,
}
ROUND_S = 2.0
LEASE_S = 5.0
FILE_BYTES_MAX = 64 * limits.MIB


class Broke(Exception):
    """Something that must hold did not."""


def set_small_limits() -> None:
    for name, value in SMALL.items():
        setattr(limits, name, value)


# --- a worker -----------------------------------------------------------------------------------------------------


class Worker:
    """One process: threads and an event loop that do random things until it is killed or told to end."""

    def __init__(self, link: Connection, url: str, number: int, generation: int, seed: int, log_path: str, first: int, pause_s: float) -> None:
        set_small_limits()
        self.link, self.number, self.pause_s = link, number, pause_s
        self.dice = random.Random(f"{seed}/{number}/{generation}")
        self.memory = Memory(url, actor=f"w{number}")
        self.other = Memory(url, actor=f"w{number}b")  # a second handle: two replicas of each session in one process
        self.log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.serial = first
        self.lock = threading.Lock()
        self.parking, self.resume, self.ending = threading.Event(), threading.Event(), threading.Event()
        self.parked = threading.Semaphore(0)
        self.operations = 0

    def note(self, *words: object) -> None:
        """Write a line that outlives this process."""
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    def next(self) -> int:
        with self.lock:
            self.serial += 1
            return self.serial

    def main(self) -> None:
        jobs = [self.race, self.acknowledge, self.keep_large, self.look_back]
        threads = [threading.Thread(target=self.loop, args=(job, random.Random(self.dice.random())), daemon=True) for job in jobs]
        threads.append(threading.Thread(target=self.loop_async, args=(random.Random(self.dice.random()),), daemon=True))
        for thread in threads:
            thread.start()
        self.link.send({"ready": os.getpid()})
        while (order := self.hear()) != "end":
            if order == "park":
                self.resume.clear()
                self.parking.set()
                for _ in threads:
                    if not self.parked.acquire(timeout=90):
                        self.note("!", "a thread does not come back from its operation")
                self.link.send({"parked": True})
            elif order == "tell":
                self.link.send(self.told())
            else:
                self.parking.clear()
                self.resume.set()
        self.ending.set()
        self.parking.clear()
        self.resume.set()
        for thread in threads:
            thread.join(60)
        self.other.close()
        self.memory.close()
        self.link.send({"ended": all(not thread.is_alive() for thread in threads)})

    def hear(self) -> str:
        try:
            return str(self.link.recv())
        except EOFError:
            os._exit(1)  # the one who looks is gone

    def told(self) -> dict[str, Any]:
        sessions = [memory.session(name) for memory in (self.memory, self.other) for name in SESSIONS]
        hashes = [[session.session_id, session.state_hash(), session._replica.state.seq] for session in sessions]
        return {"hashes": hashes, "operations": self.operations, "rss_kb": rss_kb()}

    def rest(self) -> bool:
        """Park where told to; return whether to go on."""
        if self.parking.is_set():
            self.parked.release()
            self.resume.wait()
        time.sleep(self.pause_s)
        return not self.ending.is_set()

    def loop(self, job: Callable[[random.Random], None], dice: random.Random) -> None:
        while self.rest():
            self.attempt(lambda: job(dice))

    def attempt(self, run: Callable[[], None]) -> None:
        try:
            run()
            self.operations += 1
        except Busy:
            self.note("busy")
        except Exception:
            self.note("!", json.dumps(traceback.format_exc()))

    def loop_async(self, dice: random.Random) -> None:
        loop = asyncio.new_event_loop()
        while self.rest():
            self.attempt(lambda: loop.run_until_complete(self.burst(dice)))
        loop.close()

    async def burst(self, dice: random.Random) -> None:
        """Some tasks at once; one of them is cancelled in the middle of its wait."""
        session = self.other.async_session("race")

        async def want() -> None:
            key = race_key(dice)

            async def work() -> str:
                self.note("x", key, os.getpid())
                await asyncio.sleep(dice.random() * 0.01)
                return f"{os.getpid()}:{self.next()}"

            self.note("v", key, await session.once(key, work, ttl_s=30, lease_s=LEASE_S, timeout_s=60))

        tasks = [asyncio.create_task(want()) for _ in range(4)]
        unlucky = asyncio.create_task(session.wait(race_key(dice), 5.0))
        await asyncio.sleep(0.001)
        unlucky.cancel()
        await asyncio.gather(*tasks)
        await self.set_async(dice)

    async def set_async(self, dice: random.Random) -> None:
        key, n = f"w{self.number}:async:{dice.randrange(10)}", self.next()
        self.note("t", key, n)
        await self.other.async_session("acks").set(key, n)
        self.note("a", key, n)

    def race(self, dice: random.Random) -> None:
        """Everybody wants the same work at the same time."""
        key = race_key(dice)

        def work() -> str:
            self.note("x", key, os.getpid())
            time.sleep(dice.random() * 0.01)
            return f"{os.getpid()}:{self.next()}"

        self.note("v", key, self.memory.session("race").once(key, work, ttl_s=30, lease_s=LEASE_S, timeout_s=60))

    def acknowledge(self, dice: random.Random) -> None:
        """Overwrite own values, by either handle; now and then in a forked child, or in a session that evicts."""
        memory = dice.choice([self.memory, self.other])
        how = dice.random()
        if how < 0.01 and hasattr(os, "fork"):
            self.fork(memory)
        elif how < 0.15:
            memory.session("lru").set(f"k{dice.randrange(100)}", "x" * dice.randrange(200))
            memory.session("lru").peek(f"k{dice.randrange(100)}")
        else:
            key, n = f"w{self.number}:{dice.randrange(50)}", self.next()
            self.note("t", key, n)
            memory.session("acks").set(key, n)
            self.note("a", key, n)
            found = memory.session("acks").peek(key)
            if not isinstance(found, Hit) or found.value != n:
                self.note("!", f"own value of {key}: {found}, not {n}")

    def fork(self, memory: Memory) -> None:
        pid = os.fork()
        if pid:
            if os.waitpid(pid, 0)[1]:
                self.note("!", "a forked child hangs or died")
            return
        signal.alarm(60)
        try:
            session = memory.session("acks")
            for n in range(3):
                session.set(f"child:{os.getpid()}", n, ttl_s=20)
                if session.peek(f"child:{os.getpid()}").value != n:
                    self.note("!", "a forked child does not see its own write")
        except Busy:
            pass
        except BaseException:
            self.note("!", json.dumps(traceback.format_exc()))
        finally:
            os._exit(0)

    def keep_large(self, dice: random.Random) -> None:
        """Large values: own ones replaced, one that is shared, erased now and then; compaction in the middle of it all."""
        session = self.memory.session("large")
        key = f"w{self.number}:{dice.randrange(4)}"
        how = dice.random()
        if how < 0.55:
            body = dice.randbytes(100) * dice.randrange(400, 900)
            session.set(key, body)
            found = session.peek(key)
            if not isinstance(found, Hit) or found.value != body:
                self.note("!", f"large value of {key} is another")
        elif how < 0.75:
            found = session.peek(f"w{dice.randrange(8)}:{dice.randrange(4)}")  # somebody else's: read and checked by its hash
            session.set("shared", b"the same for all " * 4_000)
        elif how < 0.79:
            session.forget(key, erase=True)
            self.note("erased", key)
        elif how < 0.85:
            memory = dice.choice([self.memory, self.other])
            memory.session(dice.choice(SESSIONS))._replica.compact()
            self.note("compacted")
        elif how < 0.86:
            self.memory.compact()
            self.note("compacted")

    def look_back(self, dice: random.Random) -> None:
        """Change the graph, read it as it was, fork, end the fork."""
        session = self.memory.session("graph")
        how = dice.random()
        if how < 0.6:
            session.mutate(f"+ TSK [NEW] ; goal=g{self.next()} ; ttl=20s" if how < 0.1 else f"~ [T{dice.randrange(1, 11)}] ; n={self.next()}")
        elif how < 0.8:
            records = self.memory._journal.read("graph", 0, 1)
            last = session._replica.state.seq
            seq = dice.randint(records[0].seq, max(records[0].seq, last)) if records else 0
            try:
                if seq:
                    session.at(seq).walk("T1")
                    session.diff(seq)
            except Refused as refused:
                if refused.code != "history_gone":
                    raise
        elif how < 0.83:
            self.fork_session(dice)

    def fork_session(self, dice: random.Random) -> None:
        source, name = dice.choice(SESSIONS), f"fork-{self.number}-{dice.randrange(3)}"
        try:
            fork = self.memory.fork(source, name)
            fork.set("mine", self.next())
            fork.keys()
        except Refused as refused:
            if refused.code not in ("session_exists", "session_ended", "no_such_session"):
                raise
        self.memory.end(name)
        self.note("forked")


def race_key(dice: random.Random) -> str:
    return f"r{int(time.time() / ROUND_S)}:{dice.randrange(8)}"


def rss_kb() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_worker(*arguments: Any) -> None:
    Worker(*arguments).main()


def run_histories(link: Connection, first: int, count: int) -> None:
    """Play simulated histories beside the soak; tell how many, and the seed that broke."""
    from pinfold.testing.sim import InvariantBroken, run_history

    if hasattr(os, "nice"):
        os.nice(5)
    faults: Counter[str] = Counter()
    entries = 0
    for seed in range(first, first + count):
        try:
            report = run_history(seed)
        except InvariantBroken as broken:
            link.send({"broken": str(broken), "histories": seed - first})
            return
        faults.update(report.faults)
        entries += report.entries
        if (seed - first) % 100 == 99:
            link.send({"histories": seed - first + 1})
    link.send({"histories": count, "entries": entries, "faults": dict(faults), "done": True})


# --- the one who looks --------------------------------------------------------------------------------------------


class Team:
    """The worker processes, what they noted, and what became of them."""

    def __init__(self, folder: Path, seed: int, size: int, pause_s: float) -> None:
        self.folder, self.seed, self.pause_s = folder, seed, pause_s
        self.url = f"sqlite:///{folder}/store.db"
        self.context = multiprocessing.get_context("spawn")
        self.dice = random.Random(seed)
        self.processes: list[Any] = [None] * size
        self.links: list[Any] = [None] * size
        self.generations = [0] * size
        self.logs: dict[Path, int] = {}
        self.acked: dict[str, int] = {}
        self.tried: dict[str, int] = {}
        self.values: dict[str, set[str]] = defaultdict(set)
        self.executed: dict[str, list[int]] = defaultdict(list)
        self.killed: set[int] = set()
        self.counts: Counter[str] = Counter()
        for number in range(size):
            self.begin(number)
        for number in range(size):
            self.hear(number, "ready")

    def begin(self, number: int) -> None:
        mine, theirs = self.context.Pipe()
        self.generations[number] += 1
        path = self.folder / f"w{number}-{self.generations[number]}.log"
        self.logs[path] = 0
        first = max(self.tried.values(), default=0) + 1_000_000  # above whatever a killed one may still have written
        arguments = (theirs, self.url, number, self.generations[number], self.seed, str(path), first, self.pause_s)
        process = self.context.Process(target=run_worker, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self.processes[number], self.links[number] = process, mine

    def hear(self, number: int, what: str) -> Any:
        link = self.links[number]
        if not link.poll(120):
            raise Broke(f"worker {number} has said nothing for 120 s")
        try:
            told = link.recv()
        except EOFError:
            self.read_logs()
            raise Broke(f"worker {number} died by itself") from None
        return told.get(what, told)

    def kill_one(self) -> None:
        """Kill a worker in the middle of whatever it does. The first is spared: its memory is watched."""
        number = self.dice.randrange(1, len(self.processes))
        process = self.processes[number]
        self.killed.add(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        self.read_logs()
        self.counts["kills"] += 1
        self.begin(number)
        self.hear(number, "ready")

    def read_logs(self) -> None:
        """Take in what was noted since. Raises Broke at what a worker itself found wrong."""
        for path, offset in list(self.logs.items()):
            with open(path, "rb") if path.exists() else open(os.devnull, "rb") as file:
                file.seek(offset)
                whole, mark, _ = file.read().rpartition(b"\n")
            self.logs[path] = offset + len(whole) + len(mark)
            for line in whole.decode().splitlines():
                self.take(path, line)

    def take(self, path: Path, line: str) -> None:
        what, _, rest = line.partition(" ")
        self.counts[what] += 1
        if what == "!":
            raise Broke(f"{path.name}: {json.loads(rest) if rest.startswith(chr(34)) else rest}")
        key, _, value = rest.partition(" ")
        if what == "a":
            self.acked[key] = max(self.acked.get(key, 0), int(value))
        elif what == "t":
            self.tried[key] = max(self.tried.get(key, 0), int(value))
        elif what == "v":
            self.values[key].add(value)
        elif what == "x":
            self.executed[key].append(int(value))

    def park(self) -> list[dict[str, Any]]:
        for order in ("park", "tell"):  # nobody looks before everybody rests
            for link in self.links:
                link.send(order)
            told = [self.hear(number, "told") for number in range(len(self.links))]
        self.read_logs()
        return told

    def go_on(self) -> None:
        for link in self.links:
            link.send("go on")

    def end(self) -> None:
        for link in self.links:
            link.send("end")
        for number, process in enumerate(self.processes):
            if self.hear(number, "ended") is not True:
                raise Broke(f"worker {number} has a thread that does not end")
            process.join(60)

    def kill_all(self) -> None:
        for process in self.processes:
            if process is not None and process.is_alive():
                process.kill()


def check(team: Team, told: list[dict[str, Any]]) -> dict[str, Any]:
    """Everybody is parked: look at all of it. Raises Broke."""
    journal = SqliteJournal(team.url.removeprefix("sqlite:///"))
    try:
        for key, values in team.values.items():
            if len(values) > 1:
                raise Broke(f"{key} came to more than one value: {sorted(values)}")
            alive = [pid for pid in team.executed[key] if pid not in team.killed]
            if len(alive) > 1:
                raise Broke(f"{key} was executed {len(alive)} times by processes nobody killed: {alive}")
        team.counts["work"] += len(team.values)
        team.counts["again"] += sum(len(pids) - 1 for key, pids in team.executed.items() if len(pids) > 1)
        team.values.clear()
        team.executed.clear()
        states = {name: load_state(journal, name) for name in SESSIONS if journal.info(name) is not None}
        for key, n in team.acked.items():
            slot = states["acks"].silo.slots.get(key)
            value = int(slot.value.text) if slot is not None else -1  # type: ignore[union-attr]
            if not n <= value <= team.tried[key]:
                raise Broke(f"{key} holds {value}; {n} was acknowledged, {team.tried[key]} was tried last")
        expected = {name: state_hash(state) for name, state in states.items()}
        for number, each in enumerate(told):
            for name, found, seq in each["hashes"]:
                if found != expected.get(name, found):
                    raise Broke(f"worker {number} has another state of {name} at {seq} than the store at {states[name].seq}")
        retained = 0
        for name in states:
            seqs = [record.seq for record in journal.read(name, 0)]
            if seqs[-1] != states[name].seq:
                raise Broke(f"{name} was written to while all were parked: another state by now")
            retained += len(seqs)
            past = Past(journal, name)
            for seq in sorted({seqs[0], *team.dice.sample(seqs, min(5, len(seqs))), seqs[-1]}):
                try:
                    past.at(seq)
                except Refused:
                    raise Broke(f"{name} was trimmed in the background meanwhile: another state by now") from None
            if state_hash(past.at(seqs[-1])) != expected[name]:
                raise Broke(f"{name}: replaying the past does not lead to the present")
            size = journal.info(name)
            if size is not None and size.entry_bytes > 4 * limits.HISTORY_BYTES:
                raise Broke(f"{name} retains {size.entry_bytes} bytes of history")
        report = examine(journal)
        if not report.ok:
            raise Broke(f"doctor: {report.findings[:5]}")
        if report.size_bytes is not None and report.size_bytes > FILE_BYTES_MAX:
            raise Broke(f"the file has {report.size_bytes} bytes")
        return {"file_bytes": report.size_bytes, "retained": retained, "seqs": {name: state.seq for name, state in states.items()}}
    finally:
        journal.close()


def parked_and_checked(team: Team) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    told = team.park()
    for _ in range(4):  # a renewal or a touch in the background may fall between two looks
        try:
            return told, check(team, told)
        except Broke as broke:
            if "another state" not in str(broke):
                raise
        team.go_on()
        told = team.park()
    return told, check(team, told)


def is_bounded(figures: Sequence[float], slack: float) -> bool:
    """Return whether a series stops growing: nothing after its first third is far above the most of that third.

    A short run is all warm-up and tells nothing.
    """
    if len(figures) < 12:
        return True
    warm = max(figures[: max(2, len(figures) // 3)])
    return max(figures) <= warm * 1.5 + slack


def soak(options: argparse.Namespace, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run for options.seconds. Return the summary. Raises Broke."""
    set_small_limits()
    limits_told = ", ".join(f"{name}={value}" for name, value in SMALL.items())
    tell(f"seed {options.seed}, {options.processes} processes, {options.seconds} s; limits {limits_told}")
    with Memory(f"sqlite:///{folder}/store.db") as memory:
        memory.session("graph").mutate("\n".join(f"+ TSK [T{n}] ; goal=start" for n in range(1, 11)))
        memory.session("lru", silo_size=20)
    began = time.monotonic()
    team = Team(folder, options.seed, options.processes, options.pause_ms / 1000)
    histories = histories_beside(team, options)
    files: list[float] = []
    memories: list[float] = []
    every_s = min(60.0, max(5.0, options.seconds / 8))
    told: list[dict[str, Any]] = []
    try:
        minute = 0
        while time.monotonic() - began < options.seconds:
            minute += 1
            until = min(began + minute * every_s, began + options.seconds)
            while (left_s := until - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.5 + team.dice.random() * 3))
                team.read_logs()
                if time.monotonic() < until:
                    team.kill_one()
            told, seen = parked_and_checked(team)
            files.append(seen["file_bytes"])
            memories.append(told[0]["rss_kb"])
            tell(line_of(time.monotonic() - began, team, told, seen, next(histories)))
            team.go_on()
        team.end()
        while not (last := next(histories)).get("done"):
            time.sleep(1)
    finally:
        team.kill_all()
    if not is_bounded(files, 4 * limits.MIB):
        raise Broke(f"the file goes on growing: {files}")
    if not is_bounded(memories, 20_000):
        raise Broke(f"the memory of the first worker goes on growing: {memories}")
    return {
        "seed": options.seed,
        "seconds": round(time.monotonic() - began),
        "kills": team.counts["kills"],
        "acknowledged": team.counts["a"],
        "works_shared": team.counts["work"],
        "done_again_after_a_kill": team.counts["again"],
        "compactions_asked": team.counts["compacted"],
        "forks": team.counts["forked"],
        "erasures": team.counts["erased"],
        "busy": team.counts["busy"],
        "file_kb": [round(size / 1024) for size in files],
        "rss_kb": memories,
        **{name: value for name, value in last.items() if name != "done"},
    }


def line_of(passed_s: float, team: Team, told: list[dict[str, Any]], seen: dict[str, Any], histories: dict[str, Any]) -> str:
    counts, seqs = team.counts, sum(seen["seqs"].values())
    return (
        f"{passed_s:6.0f} s  {seqs} entries ({seen['retained']} retained)  {counts['a']} acks  {counts['work']} works, {counts['again']} again  "
        f"{counts['kills']} kills  {counts['compacted']} compactions  {counts['forked']} forks  {counts['erased']} erasures  {counts['busy']} busy  "
        f"file {seen['file_bytes'] / limits.MIB:.1f} MiB  rss {told[0]['rss_kb'] / 1024:.0f} MiB  histories {histories.get('histories', 0)}"
    )


def histories_beside(team: Team, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield, at every look, the last that was heard of the simulated histories. Raises Broke where one broke."""
    last: dict[str, Any] = {"histories": 0, "done": options.histories == 0}
    mine, theirs = team.context.Pipe()
    process = team.context.Process(target=run_histories, args=(theirs, options.seed, options.histories), daemon=True)
    if options.histories:
        process.start()
    while True:
        while mine.poll():
            last = mine.recv()
            if "broken" in last:
                raise Broke(f"history: {last['broken']}")
        if options.histories and not last.get("done") and not process.is_alive() and not mine.poll():
            raise Broke("the process that plays histories died")
        yield last


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and tell. Return 0 where everything held, 1 where it did not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Everything at once on one store, for a given time.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="who does what and who is killed (default: another each time)")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--pause-ms", type=float, default=2.0, help="what each thread rests between two operations")
    parser.add_argument("--histories", type=int, default=0, metavar="N", help="also play N simulated histories")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the store and the notes here, instead of in a folder that goes")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = int.from_bytes(blake2b(os.urandom(8), digest_size=4).digest(), "big")
    with tempfile.TemporaryDirectory(prefix="pinfold-soak-") as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            summary = soak(options, folder, lambda line: print(line, flush=True))
        except (Broke, JournalCorrupt, Unavailable, PinfoldError) as error:
            print(f"BROKE with seed {options.seed}: {error}", flush=True)
            return 1
    print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
