"""python -m benchmarks.fleet [cluster|postgres|cost|crowd] [--writers 8] [--sessions 64] [--rounds 1]

Breaks servers under load and counts: writers in processes of their own, primaries killed with -9 one after another, one
stopped and continued, a slot moved; for PostgreSQL, crashes and dropped connections. What must hold at the end: no acknowledged
write lost, none doubled, one winner per claim, equal state hashes. `cost`: an append beside the raw server doing the same, and
how soon a waiter is told. `crowd`: 10,000 sessions of which 100 are in use.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "services"))

from servers import Cluster, Postgres, Valkey, until

from benchmarks.harness import Side, WrongAnswer, run_once
from benchmarks.harness import verify as check_side
from pinfold import Claimed, Memory, Refused, Unavailable
from pinfold.entry import decode_entry
from pinfold.fold import load_state
from pinfold.journal.open import migrate_store, open_journal
from pinfold.state.session import SessionState, apply, state_hash

GIVE_UP_S = 60.0
"""How long a writer repeats one request before it counts as unknown."""


# --- writers ------------------------------------------------------------------------------------------------------


def write(url: str, path: str, number: int, sessions: int, stop: Any) -> None:
    """Write to random sessions until told to stop; each line of the file is one acknowledged event."""
    dice = random.Random(number)
    with Memory(url, actor=f"w{number}") as memory, open(path, "w", encoding="utf-8", buffering=1) as told:
        n = 0
        while not stop.is_set():
            n += 1
            name = f"s{dice.randrange(3 if dice.random() < 0.3 else sessions)}"  # some are hot
            _write_one(memory, told, dice, name, f"w{number}:{n}", f"job{n // 20}")  # all want the same jobs at about the same time


def _write_one(memory: Memory, told: Any, dice: random.Random, name: str, tag: str, job: str) -> None:
    """Set a key, or claim a job and fulfil it where it was won."""
    if dice.random() < 0.7:
        key = f"k{dice.randrange(20)}"
        _told(told, lambda: memory.session(name).set(key, tag, request_id=tag), lambda _: ["set", name, tag])
        return
    claim = _told(told, lambda: memory.session(name).claim(job, 3600, request_id=f"{tag}c"), lambda c: _claim_row(name, c))
    if isinstance(claim, Claimed):
        _told(told, lambda: memory.session(name).fulfil(claim, tag, request_id=f"{tag}f"), lambda _: ["set", name, tag])


def _claim_row(name: str, claim: Any) -> list[Any] | None:
    return ["won", name, claim.key, claim.token] if isinstance(claim, Claimed) else None


def _told(told: Any, run: Callable[[], Any], row: Callable[[Any], list[Any] | None]) -> Any:
    """Run a request, again with its request_id while the store is away; write down what was acknowledged."""
    until_s = time.monotonic() + GIVE_UP_S
    while True:
        try:
            answer = run()
        except Unavailable:
            if time.monotonic() > until_s:
                return None
            continue
        except Refused:
            return None
        line = row(answer)
        if line is not None:
            told.write(json.dumps([time.monotonic(), *line]) + "\n")
        return answer


@contextmanager
def writing(url: str, folder: Path, writers: int, sessions: int) -> Iterator[Callable[[], list[list[Any]]]]:
    """Writers at work for the length of the block; the value returns everything they were acknowledged so far."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    paths = [folder / f"writer-{number}" for number in range(writers)]
    processes = [context.Process(target=write, args=(url, str(path), number, sessions, stop), daemon=True) for number, path in enumerate(paths)]
    for process in processes:
        process.start()

    def acknowledged() -> list[list[Any]]:
        rows = []
        for path in paths:
            if path.exists():
                rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("]")]
        return rows

    try:
        until(lambda: len(acknowledged()) >= writers, "the writers to start", 180)
        yield acknowledged
    finally:
        stop.set()
        for process in processes:
            process.join(GIVE_UP_S + 30)
            if process.is_alive():
                process.kill()
                raise AssertionError("a writer hangs")


# --- what must hold -----------------------------------------------------------------------------------------------


def verify(url: str, rows: list[list[Any]], sessions: int) -> dict[str, int]:
    """Return counts; fail where an acknowledged write is lost, one is doubled, a claim has two winners, or states differ."""
    journal = open_journal(url)
    written: Counter[tuple[str, str]] = Counter()
    requests: Counter[tuple[str, str]] = Counter()
    claims: set[tuple[str, str, int]] = set()
    entries = 0
    for number in range(sessions):
        name = f"s{number}"
        state = SessionState()
        for record in journal.read(name, 0):
            entry = decode_entry(record)
            apply(state, entry, record.hash)
            entries += 1
            if entry.request_id:
                requests[name, entry.request_id] += 1
            for fact in entry.facts:
                if fact["f"] == "slot.put":
                    written[name, fact["v"]] += 1
                elif fact["f"] == "promise.put" and fact["s"] == "pending":
                    claims.add((name, fact["k"], fact["t"]))
        with Memory(url, background=False) as memory:
            seen = memory.session(name).state_hash()
        assert seen == state_hash(state) == state_hash(load_state(journal, name)), f"{name}: states differ"
    journal.close()
    acknowledged = {(name, value) for _, kind, name, value, *_ in rows if kind == "set"}
    lost = [item for item in acknowledged if not written[item]]
    doubled = [item for item, times in [*written.items(), *requests.items()] if times > 1]
    winners = Counter((name, key) for _, kind, name, key, *_ in rows if kind == "won")
    twice = [item for item, times in winners.items() if times > 1]
    unknown = [row for row in rows if row[1] == "won" and tuple(row[2:5]) not in claims]
    assert not lost, f"{len(lost)} acknowledged writes are lost: {lost[:3]}"
    assert not doubled, f"{len(doubled)} writes are doubled: {doubled[:3]}"
    assert not twice, f"{len(twice)} claims have two winners: {twice[:3]}"
    assert not unknown, f"{len(unknown)} claims are not in the journal: {unknown[:3]}"
    return {"acknowledged": len(acknowledged), "entries": entries, "claims": len(winners), "lost": 0, "doubled": 0, "two winners": 0}


def longest_pause(rows: list[list[Any]], sessions: set[str], since_s: float, until_s: float) -> float:
    """Return the longest time without an acknowledged write to any of these sessions."""
    times = [since_s, *sorted(row[0] for row in rows if row[2] in sessions and since_s <= row[0] <= until_s)]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


# --- breaking a cluster -------------------------------------------------------------------------------------------


def primaries(cluster: Cluster) -> list[Valkey]:
    return [node for node in cluster.nodes if node.process is not None and node.info("replication")["role"] == "master"]


def held_by(cluster: Cluster, node: Valkey, sessions: int) -> set[str]:
    """Return the sessions whose slot this node serves."""
    from redis.crc import key_slot

    served = [(first, last) for first, last, primary, *_ in _slots(cluster) if primary[1] == node.port]
    return {f"s{n}" for n in range(sessions) if any(first <= key_slot(f"s{n}".encode()) <= last for first, last in served)}


def _slots(cluster: Cluster) -> list[Any]:
    from redis.connection import Connection

    for node in cluster.nodes:
        if node.process is None:
            continue
        connection = Connection(port=node.port, protocol=2, socket_timeout=2)
        try:
            connection.send_command("CLUSTER", "SLOTS")
            found: list[Any] = connection.read_response()
            return found
        except Exception as error:  # stopped or dying: another node knows
            print(f"node {node.port}: {error}", file=sys.stderr)
        finally:
            connection.disconnect()
    raise AssertionError("no node answers")


def fail_over(cluster: Cluster, node: Valkey, how: str) -> None:
    """Take a primary away, wait until another serves its slots, bring it back as a replica."""
    port = node.port
    if how == "kill":
        node.kill()
    else:
        node.signal(signal.SIGSTOP)
    others = Cluster.__new__(Cluster)
    others.nodes = [other for other in cluster.nodes if other is not node]
    until(lambda: port not in {primary[1] for _, _, primary, *_ in _slots(others)}, f"a failover from {port}")
    if how == "kill":
        node.start()
    else:
        node.signal(signal.SIGCONT)
    cluster.settle()


def move_slot(cluster: Cluster, slot: int) -> int:
    """Move one slot to another primary, key by key, while it is written to. Return how many keys moved."""
    owner = next(node for node in primaries(cluster) if any(first <= slot <= last and primary[1] == node.port for first, last, primary, *_ in _slots(cluster)))
    target = next(node for node in primaries(cluster) if node is not owner)
    owner_id, target_id = owner.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", owner_id)
    owner.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    moved = 0
    while keys := owner.ask("CLUSTER", "GETKEYSINSLOT", slot, 10):
        owner.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)  # type: ignore[misc]
        moved += len(keys)  # type: ignore[arg-type]
    for node in (target, owner, *(other for other in primaries(cluster) if other not in (target, owner))):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    return moved


def break_cluster(cluster: Cluster, folder: Path, writers: int, sessions: int, times: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Take primaries away so many times, in turn, and once by a stop; move as many slots. Return the counts and the pauses in seconds."""
    from redis.crc import key_slot

    pauses: dict[str, list[float]] = {"kill": [], "stop": [], "move": []}
    with writing(cluster.url, folder, writers, sessions) as acknowledged:
        for number in range(times):
            for how in ("kill", "stop") if number == 0 else ("kill",):
                node = primaries(cluster)[number % cluster.primaries]
                touched, since_s = held_by(cluster, node, sessions), time.monotonic()
                fail_over(cluster, node, how)
                _goes_on(acknowledged, touched)
                pauses[how].append(longest_pause(acknowledged(), touched, since_s, time.monotonic()))
                say(f"{how} of the primary of {len(touched)} sessions: {pauses[how][-1]:.1f} s without an acknowledged write there")
            slot = key_slot(f"s{number}".encode())
            since_s = time.monotonic()
            moved = move_slot(cluster, slot)
            touched = {f"s{n}" for n in range(sessions) if key_slot(f"s{n}".encode()) == slot}
            _goes_on(acknowledged, touched)
            pauses["move"].append(longest_pause(acknowledged(), touched, since_s, time.monotonic()))
            say(f"a slot of {moved} keys moved: {pauses['move'][-1]:.1f} s")
    return {**verify(cluster.url, acknowledged(), sessions), "pauses_s": {how: [round(pause, 2) for pause in found] for how, found in pauses.items()}}


def _goes_on(acknowledged: Callable[[], list[list[Any]]], touched: set[str]) -> None:
    """Wait until each of these sessions, or as many as are asked for, was written to again."""
    from_s = time.monotonic()
    enough = max(1, len(touched) // 4)
    until(lambda: len({row[2] for row in acknowledged() if row[0] > from_s and row[2] in touched}) >= enough, "writes to go on", 90)


def break_postgres(server: Postgres, folder: Path, writers: int, sessions: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Crash the server and drop connections under load; return the counts and the pauses in seconds."""
    import psycopg

    every = {f"s{n}" for n in range(sessions)}
    pauses: list[float] = []
    with writing(server.url, folder, writers, sessions) as acknowledged:
        for _ in range(rounds * 2):
            since_s = time.monotonic()
            server.stop(signal.SIGQUIT)
            server.start()
            _goes_on(acknowledged, every)
            pauses.append(longest_pause(acknowledged(), every, since_s, time.monotonic()))
            say(f"crash: {pauses[-1]:.1f} s without an acknowledged write")
            with psycopg.connect(server.url, autocommit=True) as db:
                db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pinfold'")
            _goes_on(acknowledged, every)
    return {**verify(server.url, acknowledged(), sessions), "pauses_s": {"crash": [round(pause, 2) for pause in pauses]}}


# --- what an append costs -----------------------------------------------------------------------------------------


RAW_SCRIPT = """
local last = redis.call('HGET', KEYS[1], 's') or '0'
if last ~= ARGV[1] then return 0 end
redis.call('XADD', KEYS[2], ARGV[2] .. '-0', 'h', ARGV[3], 'b', ARGV[4])
redis.call('HSET', KEYS[1], 's', ARGV[2], 'h', ARGV[3])
return 1
"""


def timed(calls: int, run: Callable[[int], Any]) -> list[float]:
    found = []
    for n in range(calls):
        began_s = time.perf_counter()
        run(n)
        found.append(time.perf_counter() - began_s)
    return found


def ratio(
    name: str, ours: Callable[[int], Any], kept: Callable[[], bool], raw: Callable[[int], Any], raw_kept: Callable[[], bool], calls: int, rounds: int = 7
) -> dict[str, Any]:
    """Return the figures of both sides, taken in turns in one run: medians of the rounds' p50 and p99, in ms, and their ratio.

    ratio50: the median of the rounds' ratios. quiet50: the least p50 of ours beside the least of the raw side, which says more
    where other programs crowd the machine. cpu_ms: what a call costs this process. kept, raw_kept: whether the server has what was
    written last. Raises WrongAnswer where it has not, before anything was timed or after.
    """
    figures: dict[str, list[float]] = {"ours50": [], "raw50": [], "ours99": [], "raw99": [], "ours_cpu": [], "raw_cpu": []}
    sides = [Side("pinfold", lambda: sum(timed(max(1, calls // 4), ours)), kept), Side("raw", lambda: sum(timed(max(1, calls // 4), raw)), raw_kept)]
    for side in sides:
        run_once(name, side)
        check_side(name, side)
    for _ in range(rounds):
        for which, each in (("ours", ours), ("raw", raw)):
            cpu_s = time.process_time()
            found = sorted(timed(calls, each))
            figures[f"{which}_cpu"].append((time.process_time() - cpu_s) / calls * 1000)
            figures[f"{which}50"].append(found[len(found) // 2] * 1000)
            figures[f"{which}99"].append(found[int(len(found) * 0.99)] * 1000)
    for side in sides:
        check_side(name, side)
    middle = {side: sorted(values)[len(values) // 2] for side, values in figures.items()}
    ratios = sorted(ours / raw for ours, raw in zip(figures["ours50"], figures["raw50"], strict=True))
    return {
        "what": name,
        **{side: round(value, 3) for side, value in middle.items()},
        "ratio50": round(ratios[len(ratios) // 2], 2),
        "quiet50": round(min(figures["ours50"]) / min(figures["raw50"]), 2),
    }


def costs(valkey: Valkey | None, replicated: Valkey | None, postgres: Postgres | None, calls: int) -> Iterator[dict[str, Any]]:
    """Yield, for each server, an append of the journal and a `set` of a session beside the raw server doing the same."""
    with ExitStack() as opened:
        yield from _costs(opened, valkey, replicated, postgres, calls)


def _costs(opened: ExitStack, valkey: Valkey | None, replicated: Valkey | None, postgres: Postgres | None, calls: int) -> Iterator[dict[str, Any]]:
    import os

    from pinfold.entry import GENESIS, Record, hash_of

    def journal_append(url: str) -> tuple[Callable[[int], Any], Callable[[], bool]]:
        journal = opened.enter_context(closing(open_journal(url)))
        last = Record(0, GENESIS, b"")

        def run(n: int) -> None:
            nonlocal last
            body = os.urandom(150)
            mine = Record(last.seq + 1, hash_of(body), body)
            assert journal.append("cost", last.seq, last.hash, [mine], {}) is None
            last = mine

        def kept() -> bool:
            with closing(open_journal(url)) as again:
                return [record.body for record in again.read("cost", last.seq - 1)] == [last.body]

        return run, kept

    def session_set(url: str) -> tuple[Callable[[int], Any], Callable[[], bool]]:
        session = opened.enter_context(Memory(url)).session("cost-session")
        last = ("", "")

        def run(n: int) -> None:
            nonlocal last
            last = f"k{n % 100}", f"{n} " + "x" * 96
            session.set(*last)

        def kept() -> bool:
            with Memory(url) as again:
                return again.session("cost-session").peek(last[0]).value == last[1]

        return run, kept

    for server, waits in ((valkey, 0), (replicated, 1)):
        if server is None:
            continue
        import redis

        client = opened.enter_context(redis.Redis(port=server.port, protocol=2, driver_info=None))
        sha = client.script_load(RAW_SCRIPT)
        seq = 0

        def raw(n: int, client: Any = client, sha: Any = sha, waits: int = waits) -> None:
            nonlocal seq
            pipe = client.pipeline(transaction=False)
            pipe.evalsha(sha, 2, "{raw}h", "{raw}e", seq, seq + 1, os.urandom(16), os.urandom(150))
            if waits:
                pipe.wait(waits, 2000)
            assert pipe.execute()[0] == 1
            seq += 1

        url = f"redis://127.0.0.1:{server.port}?replicas={waits}"
        title = "Valkey" if not waits else "Valkey, WAIT 1"

        def raw_kept(client: Any = client) -> bool:
            return client.hget("{raw}h", "s") == str(seq).encode() and client.xlen("{raw}e") == seq

        yield ratio(f"{title}: append / raw compare-and-add", *journal_append(url), raw, raw_kept, calls)
        yield ratio(f"{title}: Session.set / raw compare-and-add", *session_set(url), raw, raw_kept, calls)
    if postgres is not None:
        import psycopg

        db = opened.enter_context(psycopg.connect(postgres.url, autocommit=True, prepare_threshold=None))
        db.execute("CREATE TABLE IF NOT EXISTS raw_entry (session bigint, seq bigint, hash bytea, body bytea, PRIMARY KEY (session, seq))")
        place = 0

        def insert(n: int) -> None:
            nonlocal place
            place += 1
            db.execute("INSERT INTO raw_entry VALUES (%s, %s, %s, %s)", (1, place, os.urandom(16), os.urandom(150)))

        def inserted() -> bool:
            return db.execute("SELECT max(seq) FROM raw_entry").fetchone() == (place,)

        yield ratio("PostgreSQL: append / raw insert and commit", *journal_append(postgres.url), insert, inserted, calls)
        yield ratio("PostgreSQL: Session.set / raw insert and commit", *session_set(postgres.url), insert, inserted, calls)


def wake_ups(url: str, count: int) -> dict[str, Any]:
    """Return when a waiter in another process is told of a fulfil here, in ms: since the call, and since it was acknowledged.

    The first one is left out: it is polled for while the waiter's listening connection is made.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_waiter, args=(url, theirs, count + 1), daemon=True)
    process.start()
    since_call, since_commit = [], []
    with Memory(url) as memory:
        session = memory.session("wake")
        for n in range(count + 1):
            claim = session.claim(f"w{n}", 60)
            ours.send(n)
            ours.recv()
            threading.Event().wait(0.03)  # it is waiting by now
            assert isinstance(claim, Claimed)
            began_s = time.monotonic()
            session.fulfil(claim, f"x{n}")
            done_s = time.monotonic()
            found, told_s = ours.recv()
            if found != f"x{n}" or told_s < began_s:
                process.terminate()
                raise WrongAnswer(f"wake-up, {url.partition(':')[0]}: a waiter was told {found!r}, not what was fulfilled")
            since_call.append((told_s - began_s) * 1000)
            since_commit.append((told_s - done_s) * 1000)
    process.join(30)
    figures = {"": sorted(since_call[1:]), "_since_commit": sorted(since_commit[1:])}
    shares = {"p10": 0.1, "p50": 0.5, "p99": 0.99}
    return {
        "what": f"wake-up, {url.partition(':')[0]}",
        **{f"{share}{since}_ms": round(found[int(count * place)], 2) for since, found in figures.items() for share, place in shares.items()},
    }


def _waiter(url: str, link: Any, count: int) -> None:
    with Memory(url) as memory:
        session = memory.session("wake")
        for _ in range(count):
            n = link.recv()
            session.peek(f"w{n}")
            link.send("ready")
            found = session.wait(f"w{n}", 20)
            link.send((getattr(found, "value", None), time.monotonic()))


# --- many sessions, few of them in use ----------------------------------------------------------------------------


def crowd(url: str, idle: int, hot: int, server_bytes: Callable[[], int]) -> dict[str, Any]:
    """Return what idle sessions of five entries cost a server, what hot ones cost a process of its own, and what a look costs there.

    server_bytes: what the server holds, of which only the growth counts.
    """
    with Memory("memory://") as template:
        for key in range(5):
            template.session("idle").set(f"k{key}", "x" * 100)
        records = template._journal.read("idle", 0)
    before = server_bytes()
    with closing(open_journal(url)) as journal:
        for n in range(idle):
            assert journal.append(f"idle-{n}", 0, b"", records, {}) is None
    held = server_bytes() - before
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_hot, args=(url, idle, hot, theirs), daemon=True)
    process.start()
    figures = ours.recv()
    process.join(60)
    return {"what": f"{idle} idle sessions, {hot} hot, {url.partition(':')[0]}", "server_bytes_a_session": round(held / idle), **figures}


def _hot(url: str, idle: int, hot: int, link: Any) -> None:
    from benchmarks.memory import rss_kb

    with Memory(url) as memory:
        memory.session("idle-0").peek("k1")
        rss = rss_kb()
        sessions = [memory.session(f"idle-{n}") for n in range(hot)]
        for session in sessions:
            for key in range(20):
                session.set(f"h{key}", "y" * 100)
        grown = rss_kb() - rss
        looks = timed(hot * 10, lambda n: sessions[n % hot].peek("k1"))
        cold = timed(100, lambda n: memory.session(f"idle-{idle - 1 - n}").peek("k1"))
        rss = rss_kb()
        began_s = time.perf_counter()
        listed = len(memory._journal.sessions())
        figures = {
            "client_kb_a_hot_session": round(grown / hot, 1),
            "peek_p50_ms": round(sorted(looks)[len(looks) // 2] * 1000, 3),
            "open_and_peek_p50_ms": round(sorted(cold)[50] * 1000, 3),
            "list_all_s": round(time.perf_counter() - began_s, 2),
            "list_all_kb": rss_kb() - rss,
            "listed": listed,
        }
    link.send(figures)


def database_bytes(server: Postgres) -> int:
    """Return the size of a database on disk."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CHECKPOINT")
        row = db.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


def pss_kb(pid: int) -> int:
    """Return the memory of a process and its children in KB, shared pages by share. Linux."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if pid in (parent, int(status.parent.name)):
                text = (status.parent / "smaps_rollup").read_text()
                total += int(text.partition("\nPss:")[2].split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return total


# --- the command --------------------------------------------------------------------------------------------------


@contextmanager
def folder_for_servers() -> Iterator[Path]:
    """A temporary folder that another user than root may enter."""
    place = Path(tempfile.mkdtemp(prefix="pinfold-fleet-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description="Break servers under load, and count; or measure what an append costs.")
    parser.add_argument("what", nargs="*", default=["cluster", "postgres", "cost", "crowd"], help="cluster, postgres, cost, crowd")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--hot", type=int, default=100)
    options = parser.parse_args()
    with folder_for_servers() as place:
        if "cluster" in options.what:
            cluster = Cluster(place / "cluster")
            try:
                (place / "c").mkdir()
                print(json.dumps(break_cluster(cluster.start(), place / "c", options.writers, options.sessions, 3 * options.rounds, print)))
            finally:
                cluster.close()
        if "postgres" in options.what:
            server = Postgres(place / "pg").create().start()
            try:
                migrate_store(server.url)
                (place / "p").mkdir()
                print(json.dumps(break_postgres(server, place / "p", options.writers, options.sessions, options.rounds, print)))
            finally:
                server.stop()
        if "crowd" in options.what:
            valkey, postgres = Valkey(place / "v-crowd").start(), Postgres(place / "pg-crowd", "fsync=off").create().start()
            try:
                migrate_store(postgres.url)
                url = f"redis://127.0.0.1:{valkey.port}"
                for row in (
                    crowd(url, options.idle, options.hot, lambda: int(valkey.info("memory")["used_memory"])),
                    crowd(postgres.url, options.idle, options.hot, lambda: database_bytes(postgres)),
                ):
                    print(json.dumps(row), flush=True)
                assert valkey.process is not None and postgres.process is not None
                print(json.dumps({"valkey_pss_mb": pss_kb(valkey.process.pid) // 1024, "postgres_pss_mb": pss_kb(postgres.process.pid) // 1024}))
            finally:
                valkey.kill()
                postgres.stop()
        if "cost" in options.what:
            valkey, primary = Valkey(place / "v"), Valkey(place / "v")
            postgres = Postgres(place / "pg-cost").create()
            replica = Valkey(place / "v", "--replicaof", f"127.0.0.1 {primary.port}")
            try:
                for each in (valkey, primary, replica, postgres):
                    each.start()
                until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to follow")
                migrate_store(postgres.url)
                for row in costs(valkey, primary, postgres, options.calls):
                    print(json.dumps(row))
                for url in (f"redis://127.0.0.1:{primary.port}", postgres.url):
                    print(json.dumps(wake_ups(url, 100)))
            finally:
                for each in (valkey, replica, primary):
                    each.kill()
                postgres.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
