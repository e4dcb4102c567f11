"""Recall: a search by size of store, remembering with indexing, and the first search after opening.

Memories are words of the package's own word list, drawn so that 240,000 of them hold about 13,000 different ones, as the public
question sets do together: p(rank r) ~ 1 / ((r + 6)(1 + r / 1,500)). Four in five are turns of conversations of fifty, by two
names and two roles; one in fifty has a label. A query is eight words of one memory.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

import benchmarks.harness as harness
from benchmarks.harness import Row, Side, WrongAnswer
from benchmarks.silo import Bench, read_again
from pinfold import Memory, Session
from pinfold.recall.english import FIRST_RANKED, vocabulary

WORDS = 100_000
TURN, MESSAGE = 24, 420
"""Words of a memory: a turn of a chat, and a message of 2.5 kB."""
QUERIES = 200
STARTED_MS = 1_700_000_000_000


@functools.lru_cache(maxsize=1)
def words() -> tuple[list[str], list[float]]:
    """Return the words there are, the commonest first (made-up ones of two words last), and their running weights."""
    known = list(dict.fromkeys(word for word in vocabulary()[FIRST_RANKED:] if word.isascii() and word.isalpha()))
    rng = random.Random(3)
    made = (rng.choice(known) + rng.choice(known) for _ in itertools.count())
    listed = list(dict.fromkeys([*known, *itertools.islice(made, WORDS - len(known))]))
    return listed, list(itertools.accumulate(1.0 / ((rank + 6) * (1 + rank / 1_500)) for rank in range(len(listed))))


def texts(count: int, length: int = TURN, seed: int = 7) -> Iterator[str]:
    """Yield that many texts of so many words."""
    listed, running = words()
    rng = random.Random(seed)
    for _ in range(count):
        yield " ".join(rng.choices(listed, cum_weights=running, k=length))


def queries(count: int, among: int, length: int = TURN, seed: int = 7) -> list[tuple[int, str]]:
    """Return (number of the memory it is drawn from, query), from among the first so many texts."""
    rng = random.Random(11)
    chosen = sorted(rng.sample(range(among), min(count, among)))
    wanted = set(chosen)
    sources = {number: text for number, text in enumerate(texts(among, length, seed)) if number in wanted}
    return [(number, " ".join(rng.sample(sources[number].split(), 8))) for number in chosen]


def lines(count: int) -> Iterator[str]:
    """Yield documents of a thousand lines that write the memories."""
    rows = []
    for number, text in enumerate(texts(count)):
        where = f" ; group=talk {number // 50} ; by={('Ann', 'Bo', 'user', 'assistant')[number % 4]}" if number % 5 else ""
        label = f" ; label={text.split()[0]} {number}" if number % 50 == 0 else ""
        rows.append(f"+ NOTE [N{number}] ; content={text}{where}{label}")
        if len(rows) == 1_000 or number == count - 1:
            yield "\n".join(rows)
            rows = []


def fill(session: Session, count: int) -> None:
    for document in lines(count):
        session.mutate(document)
    if (found := session.graph_counts()["nodes"]) != count:
        raise WrongAnswer(f"recall: {found:,} of {count:,} memories were written")


def _finds(session: Session, asked: Sequence[tuple[int, str]]) -> bool:
    """Return whether most queries find the memory they are drawn from among the first five."""
    found = sum(f"N{number}" in [hit.node_id for hit in session.search(query).direct] for number, query in asked)
    return found >= 0.8 * len(asked)


# --- searching --------------------------------------------------------------------------------------------------------


def search(bench: Bench) -> None:
    """Session.search, median and 95th of 200 queries, from 10,000 to 300,000 memories with exponents."""
    _search_at(bench, (10_000, 30_000, 100_000) if bench.small else (10_000, 30_000, 100_000, 300_000))


def search_million(bench: Bench) -> None:
    """The same at 100,000, 300,000 and 1,000,000 memories: some minutes and 3 GB."""
    _search_at(bench, (100_000, 300_000, 1_000_000))


def _search_at(bench: Bench, sizes: Sequence[int]) -> None:
    p50: list[tuple[float, float]] = []
    before_kib = harness.rss_kib()  # of a process that held less until now: what it had and gave back would hide what a store takes
    for size in sizes:
        count = bench.calls(size)
        asked = queries(QUERIES, count)
        with Memory(bench.url(), background=False) as memory:
            session = memory.session("bench")
            fill(session, count)
            began = harness.per_call_clock()
            session.search("ready")
            indexed_s = harness.per_call_clock() - began
            slow: list[float] = []

            def run(session: Session = session, asked: Sequence[tuple[int, str]] = asked, slow: list[float] = slow) -> float:
                took = []
                for _, query in asked:
                    began = harness.per_call_clock()
                    session.search(query)
                    took.append(harness.per_call_clock() - began)
                slow.append(1000 * statistics.quantiles(took, n=20)[-1])
                return 1000 * statistics.median(took)

            check = functools.partial(_finds, session, asked)
            repeats = min(bench.table.repeats, 5)
            found = bench.table.compare(f"search p50, {count:,} memories", "ms", [Side("pinfold", run, check)], repeats=repeats)
            p50.append((count, found[0].median))
            bench.table.rows.append(Row(f"search p95, {count:,} memories", "pinfold", "ms", slow[-repeats:]))
            bench.table.rows.append(Row(f"indexing, {count:,} memories", "pinfold", "/s", [count / indexed_s]))
            bench.table.rows.append(Row(f"memory, {count:,} memories", "pinfold", "MB", [max(1, harness.rss_kib() - before_kib) / 1024]))
    over = f"time ~ size^x over {', '.join(f'{count:,}' for count, _ in p50)}"
    name = "search p50: growth" + ("" if sizes[0] < 100_000 else " above 100,000")
    bench.table.rows.append(Row(name, "pinfold", "exponent", [harness.exponent(p50)], note=over))


# --- writing ----------------------------------------------------------------------------------------------------------


def remember(bench: Bench) -> None:
    """Session.remember, one entry each, and a search that indexes them: turns of 24 words, messages of 2.5 kB."""
    for name, length, size in (("24 words", TURN, 10_000), ("2.5 kB", MESSAGE, 1_000)):
        count = bench.calls(size)
        told = list(texts(count, length))
        seen = [0]

        def run(told: list[str] = told, count: int = count, seen: list[int] = seen) -> float:
            url = bench.url()
            with Memory(url, background=False) as memory:
                session = memory.session("bench")
                began = harness.per_call_clock()
                for number, text in enumerate(told):
                    session.remember(text, by="Ann", group=f"talk {number // 50}", at=STARTED_MS + 60_000 * number)
                found = session.search(" ".join(told[0].split()[:50]))
                took_s = harness.per_call_clock() - began
                seen[0] = found.total_nodes if [hit.content for hit in found.direct[:1]] == told[:1] else 0
                with read_again(url) as again:
                    seen[0] = min(seen[0], again.graph_counts()["nodes"])
            return count / took_s

        def check(count: int = count, seen: list[int] = seen) -> bool:
            return seen[0] == count

        sides = [Side("pinfold sqlite", run, check)]
        bench.table.compare(f"remember and index, {name}", "/s", sides, repeats=min(bench.table.repeats, 3))

    count = bench.calls(10_000)
    with Memory(bench.url(), background=False) as memory:
        session = memory.session("bench")
        fill(session, count)
        more = texts(1_000_000, seed=13)
        asked = itertools.cycle(queries(QUERIES, count))

        newest = [""]

        def turn() -> float:
            began = harness.per_call_clock()
            for text in itertools.islice(more, 100):
                newest[0] = text
                session.remember(text, by="Ann", group="aside")
                session.search(next(asked)[1])
            return (harness.per_call_clock() - began) * 10

        def kept() -> bool:
            found = session.search(newest[0])
            return found.total_nodes >= count + 100 and found.direct[0].content == newest[0]

        bench.table.compare(f"one remember and one search, {count:,} memories", "ms", [Side("pinfold sqlite", turn, kept)], repeats=min(bench.table.repeats, 5))


# --- opening ----------------------------------------------------------------------------------------------------------

_OPEN = """
import os, sys, time
from pinfold import Memory
clock = time.process_time if os.environ.get("PINFOLD_BENCH_CLOCK") == "cpu" else time.perf_counter
with Memory(sys.argv[1], background=False) as memory:
    session = memory.session("bench")
    began = clock()
    found = session.search(sys.argv[2])
    print(clock() - began, found.direct[0].node_id, flush=True)
    os._exit(0)  # closing would keep the index for the next run
"""


def opening(bench: Bench) -> None:
    """The first search of a new process over 10,000 memories, what it imports included: with the index cached, and without."""
    count = bench.calls(10_000)
    number, query = queries(1, count)[0]
    urls = {"index cached": bench.url(), "no cache": bench.url()}
    for name, url in urls.items():
        with Memory(url, background=False) as memory:
            session = memory.session("bench")
            fill(session, count)
            if name == "index cached":
                session.search("ready")
                session._recall().save()
                if memory._journal.get_derived("bench", session._recall().name) is None:
                    raise WrongAnswer("first search: pinfold, index cached: the index was not kept")
    seen: dict[str, str] = {}

    def opened(name: str, url: str) -> Side:
        def run() -> float:
            process = subprocess.run([sys.executable, "-c", _OPEN, url, query], capture_output=True, text=True, check=False, env=dict(os.environ))
            if process.returncode:
                raise WrongAnswer(f"first search: pinfold, {name}: {process.stderr.strip()[-500:]}")
            took_s, seen[name] = process.stdout.split()
            return 1000 * float(took_s)

        return Side(f"pinfold, {name}", run, lambda: seen[name] == f"N{number}")

    repeats = min(bench.table.repeats, 5)
    sides = [opened(*item) for item in urls.items()]
    bench.table.compare(f"first search, {count:,} memories", "ms", sides, repeats=repeats)


BENCHES = {"search": search, "search-million": search_million, "remember": remember, "first-search": opening}
