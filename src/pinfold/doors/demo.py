"""`pinfold demo`: eight worker processes want the same expensive results from one store, and nothing is done twice.

Every number it prints is counted by the run itself. Executions are counted without pinfold's help: whoever analyses a
file appends a line to a plain log first. Where a count is not what it should be, the demo says so and returns 1.
All files live in one temporary folder that is removed at the end, whatever happens.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import multiprocessing
import os
import platform
import random
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NamedTuple, TextIO

from pinfold.errors import PinfoldError
from pinfold.memory import Memory
from pinfold.state.outcomes import Hit

WORKERS = 8
FILES = 40
LEASE_S = 2.0
"""Short, so that a dead owner is followed soon; long enough to be renewed on a crowded machine."""
PATIENCE_S = 60.0
"""No step of the demo may be silent for longer: a worker that hangs is a failure, not a wait."""
SESSION = "standard-library"
SUMMARY = "summary"

_NOT_READ = frozenset(("site-packages", "dist-packages", "test", "tests", "idle_test", "idlelib", "lib2to3", "ensurepip", "turtledemo", "__pycache__"))


class DemoFailed(Exception):
    """A count is not what it should be: the message says which."""


# --- the expensive work: a real analysis of real files ------------------------------------------------------------

_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case, ast.Assert)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def standard_library(count: int) -> list[str]:
    """Return the paths of the count largest source files of this Python's standard library, largest first.

    Raises DemoFailed where it has no source files (some embedded Pythons).
    """
    found = []
    for folder, subfolders, names in os.walk(sysconfig.get_paths()["stdlib"]):
        subfolders[:] = [name for name in subfolders if name not in _NOT_READ and not name.startswith("config-")]
        found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    if len(found) < count:
        raise DemoFailed(f"this Python has {len(found)} source files of its standard library, the demo needs {count}")
    return sorted(found, key=lambda path: (-os.path.getsize(path), path))[:count]


def analyse(path: str) -> dict[str, Any]:
    """Return the metrics of one Python source file.

    complexity: McCabe's, 1 + decision points, of the file's most complex function (an inner function counts for its
    outer one too); longest: its longest function, in lines.
    """
    with open(path, "rb") as file:
        source = file.read()
    tree = ast.parse(source)
    counts: Counter[str] = Counter()
    imports: set[str] = set()
    longest = most_complex = ("", 0)
    for node, name, parents in _named_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            counts["functions"] += 1
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            longest = max(longest, (name, lines), key=lambda pair: pair[1])
            complexity = 1 + sum(_decisions(inner) for inner in ast.walk(node))
            most_complex = max(most_complex, (name, complexity), key=lambda pair: pair[1])
        elif isinstance(node, ast.ClassDef):
            counts["classes"] += 1
        elif isinstance(node, ast.Import):
            imports.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports.add(node.module.partition(".")[0])
        counts["branches"] += _decisions(node)
        counts["depth"] = max(counts["depth"], parents)
    return {
        "file": os.path.basename(path),
        "lines": source.count(b"\n"),
        "functions": counts["functions"],
        "classes": counts["classes"],
        "branches": counts["branches"],
        "depth": counts["depth"],
        "imports": sorted(imports),
        "longest": list(longest),
        "complexity": list(most_complex),
    }


def _named_nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield every node, the dotted name of the function or class it is (or is in), and its depth in the tree."""
    todo: list[tuple[ast.AST, str, int]] = [(tree, "", 0)]
    while todo:
        node, name, depth = todo.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            name = f"{name}.{node.name}" if name else node.name
        yield node, name, depth
        todo += [(child, name, depth + 1) for child in ast.iter_child_nodes(node)]


def _decisions(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return 1 if isinstance(node, _BRANCHES) else 0


def summarise(paths: Sequence[str], log: ExecutionLog) -> dict[str, Any]:
    """Return what stands out in all these files together; log gets a line for every file read on the way."""
    imports: Counter[str] = Counter()
    lines = functions = 0
    longest = most_complex = ("", "", 0)
    for path in paths:
        metrics = analyse(path)
        imports.update(metrics["imports"])
        lines += metrics["lines"]
        functions += metrics["functions"]
        longest = max(longest, (metrics["file"], *metrics["longest"]), key=lambda found: found[2])
        most_complex = max(most_complex, (metrics["file"], *metrics["complexity"]), key=lambda found: found[2])
        log.add("step", path)
    return {
        "files": len(paths),
        "lines": lines,
        "functions": functions,
        "imported_most": [list(pair) for pair in imports.most_common(3)],
        "longest": list(longest),
        "complexity": list(most_complex),
    }


class LogLine(NamedTuple):
    what: str
    pid: int
    at_s: float
    key: str


class ExecutionLog:
    """A plain file that workers append to, one write a line: the count of executions that pinfold has no part in."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, what: str, key: str) -> None:
        line = f"{what}\t{os.getpid()}\t{time.time():.6f}\t{key}\n".encode("utf-8", "surrogateescape")
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    def lines(self, what: str) -> list[LogLine]:
        """Return the complete lines of one sort, in the order they were written."""
        try:
            with open(self.path, "rb") as file:
                text = file.read().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return []
        rows = (line.split("\t", 3) for line in text[: text.rfind("\n") + 1].splitlines())
        return [LogLine(row[0], int(row[1]), float(row[2]), row[3]) for row in rows if row[0] == what]


def _logged(log: ExecutionLog, key: str, work: Callable[[], Any]) -> Any:
    log.add("start", key)
    value = work()
    log.add("end", key)
    return value


def digest(value: Any) -> str:
    """Return a short hash of a result, to compare what different processes were given."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


# --- what a worker does: told by its first arguments, answered through its pipe -----------------------------------


class Task(NamedTuple):
    """What one worker is to do. Paths are of the store, the log and the files to analyse."""

    url: str
    log: str
    paths: list[str]
    number: int
    lease_s: float = LEASE_S

    def order(self) -> list[str]:
        """Return the paths in this worker's own order; all begin with the same one, so that they meet at once."""
        rest = self.paths[1:]
        random.Random(self.number).shuffle(rest)
        return [self.paths[0], *rest]


Answer = tuple[str, str, str]
"""(key, how: did | found | joined, digest of the value)."""


def work_alone(task: Task, tell: Callable[[Answer], None], ready: Callable[[], None]) -> None:
    """Do everything oneself, as workers do that share nothing."""
    log = ExecutionLog(task.log)
    ready()
    for path in task.order():
        tell((path, "did", digest(_logged(log, path, functools.partial(analyse, path)))))


def work_shared(task: Task, tell: Callable[[Answer], None], ready: Callable[[], None]) -> None:
    """Peek first; what is neither there nor in flight is done once, by whoever claims it."""
    log = ExecutionLog(task.log)
    with Memory(task.url, actor=f"worker-{task.number}") as memory:
        session = memory.session(SESSION)
        ready()
        for path in task.order():
            found = session.peek(path)
            if isinstance(found, Hit):
                tell((path, "found", digest(found.value)))
                continue
            got = session.once_hit(path, functools.partial(_logged, log, path, functools.partial(analyse, path)))
            tell((path, "joined" if got.shared else "did", digest(got.value)))


def work_summary(task: Task, tell: Callable[[Answer], None], ready: Callable[[], None]) -> None:
    """Want one long result, under a short lease that is renewed while its owner lives."""
    log = ExecutionLog(task.log)
    with Memory(task.url, actor=f"worker-{task.number}") as memory:
        session = memory.session(SESSION)
        ready()
        work = functools.partial(_logged, log, SUMMARY, functools.partial(summarise, task.paths, log))
        got = session.once_hit(SUMMARY, work, lease_s=task.lease_s)
        tell((SUMMARY, "joined" if got.shared else "did", digest(got.value)))


def look_again(task: Task, tell: Callable[[Answer], None], ready: Callable[[], None]) -> None:
    """Open the store anew and only look."""
    ready()
    with Memory(task.url) as memory:
        session = memory.session(SESSION)
        for key in [*task.paths, SUMMARY]:
            found = session.peek(key)
            tell((key, "found" if isinstance(found, Hit) else "missing", digest(found.value) if isinstance(found, Hit) else ""))


Job = Callable[[Task, Callable[[Answer], None], Callable[[], None]], None]


def _run_job(job: Job, task: Task, pipe: Connection) -> None:
    """Run in a worker process: say that it is ready, begin when told, hand back answers, then None."""

    def ready() -> None:
        pipe.send("ready")
        pipe.recv()  # ends in EOFError where the demo itself was stopped

    try:
        job(task, pipe.send, ready)
        pipe.send(None)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass


class Team:
    """Worker processes (spawned, on every platform) at one job. `with` leaves none of them behind."""

    def __init__(self, job: Job, tasks: Sequence[Task]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: dict[Connection, BaseProcess] = {}
        self._at_work: set[Connection] = set()
        self.killed: set[int] = set()
        for task in tasks:
            mine, theirs = context.Pipe()
            process = context.Process(target=_run_job, args=(job, task, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes[mine] = process

    def start(self) -> None:
        """Let all begin together, once every one is ready. Raises DemoFailed."""
        for pipe in self._pipes:
            try:
                if not pipe.poll(PATIENCE_S) or pipe.recv() != "ready":
                    raise DemoFailed(f"a worker was not ready within {PATIENCE_S:.0f} s")
            except (EOFError, OSError) as error:
                raise DemoFailed("a worker ended before it began") from error
        for pipe in self._pipes:
            pipe.send("go")
        self._at_work = set(self._pipes)

    def answers(self, tick_s: float = 0.05) -> Iterator[tuple[int, Answer] | None]:
        """Yield (pid, answer) as they come, and None at least every tick_s. Raises DemoFailed where a worker dies unasked."""
        heard_at = time.monotonic()
        while self._at_work:
            for pipe in wait(list(self._at_work), tick_s):
                assert isinstance(pipe, Connection)
                answer = self._receive(pipe)
                heard_at = time.monotonic()
                if answer is None:
                    self._at_work.discard(pipe)
                else:
                    yield self._pipes[pipe].pid or 0, answer
            if time.monotonic() - heard_at > PATIENCE_S:
                raise DemoFailed(f"{len(self._at_work)} workers said nothing for {PATIENCE_S:.0f} s")
            yield None

    def _receive(self, pipe: Connection) -> Answer | None:
        try:
            answer: Answer | None = pipe.recv()
        except (EOFError, OSError) as error:
            if self._pipes[pipe].pid not in self.killed:
                raise DemoFailed(f"worker {self._pipes[pipe].pid} died at its work") from error
            return None
        return answer

    def kill(self, pid: int) -> None:
        """SIGKILL one worker: it has no chance to say or write anything more."""
        for process in self._pipes.values():
            if process.pid == pid:
                self.killed.add(pid)
                process.kill()
                process.join()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe, process in self._pipes.items():
            if kind is not None:
                process.kill()
            process.join(PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
            process.close()


# --- telling ------------------------------------------------------------------------------------------------------


class Teller:
    """Prints lines, and on a terminal a progress bar that erases itself."""

    _WIDTH = 30

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self._live = stdout.isatty()
        self._shown = ""

    def say(self, line: str = "") -> None:
        self.clear()
        print(line, file=self._stdout, flush=True)

    def progress(self, done: int, of: int, note: str = "") -> None:
        """Show how far it is; nothing where the output is a pipe or a file."""
        if not self._live:
            return
        full = self._WIDTH * done // max(1, of)
        line = f"   [{'#' * full}{'.' * (self._WIDTH - full)}] {done:,}/{of:,} {note}"[:78]
        if line != self._shown:
            self._stdout.write("\r" + line.ljust(len(self._shown)))
            self._stdout.flush()
            self._shown = line

    def clear(self) -> None:
        if self._shown:
            self._stdout.write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise DemoFailed(f"{what}: {got}, and it should be {wanted}")


# --- the demo -----------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """One run of all workers. took_s: from the common start to the last answer."""

    took_s: float
    executions: int
    how: Counter[str]
    digests: dict[str, set[str]]


def _run_round(job: Job, folder: str, name: str, paths: list[str], workers: int, teller: Teller) -> Round:
    log = ExecutionLog(os.path.join(folder, f"{name}.log"))
    how: Counter[str] = Counter()
    digests: dict[str, set[str]] = {}
    wanted = workers * len(paths)
    with Team(job, [Task(_url(folder), log.path, paths, number) for number in range(1, workers + 1)]) as team:
        team.start()
        began = time.monotonic()
        for told in team.answers():
            if told is not None:
                key, manner, value_digest = told[1]
                how[manner] += 1
                digests.setdefault(key, set()).add(value_digest)
            teller.progress(how.total(), wanted, f"results, {how['did']:,} executions")
        took_s = time.monotonic() - began
    started, ended = Counter(line.key for line in log.lines("start")), Counter(line.key for line in log.lines("end"))
    _expect("executions begun and ended", started, ended)
    _expect("executions that the workers tell of", how["did"], started.total())
    _expect("results handed out", how.total(), wanted)
    _expect("results that differ between workers", sum(len(found) != 1 for found in digests.values()), 0)
    return Round(took_s, started.total(), how, digests)


def _url(folder: str) -> str:
    return "sqlite:///" + os.path.join(folder, "store.db").replace("\\", "/")


class Takeover(NamedTuple):
    killed: int
    steps_done: int
    after_s: float
    executions: int
    owner: int
    answered: int
    digest: str


def _run_takeover(folder: str, paths: list[str], workers: int, lease_s: float, teller: Teller) -> Takeover:
    """Let everybody want one long result, kill its owner half way, and count who took over."""
    log = ExecutionLog(os.path.join(folder, "takeover.log"))
    tasks = [Task(_url(folder), log.path, paths, number, lease_s) for number in range(1, workers + 1)]
    answers: list[tuple[int, Answer]] = []
    killed_at = 0.0
    steps_done = 0
    with Team(work_summary, tasks) as team:
        team.start()
        for told in team.answers(tick_s=0.01):
            if told is not None:
                answers.append(told)
            starts, steps = log.lines("start"), log.lines("step")
            teller.progress(len(steps), len(paths) + steps_done, "files read")
            if starts and not team.killed and len(steps) >= len(paths) // 3:
                team.kill(starts[0].pid)
                killed_at = time.time()
                steps_done = len(log.lines("step"))
    starts, ends = log.lines("start"), log.lines("end")
    _expect("executions with one owner killed", len(starts), 2)
    _expect("executions that came to an end", [line.pid for line in ends], [starts[1].pid])
    _expect("the killed worker", team.killed, {starts[0].pid})
    _expect("whether another worker took over", starts[1].pid != starts[0].pid, True)
    _expect("workers that got the result", len({pid for pid, _ in answers}), workers - 1)
    _expect("different results among them", len({answer[2] for _, answer in answers}), 1)
    _expect("workers that did the work and lived", [pid for pid, answer in answers if answer[1] == "did"], [starts[1].pid])
    return Takeover(starts[0].pid, steps_done, starts[1].at_s - killed_at, len(starts), starts[1].pid, len(answers), answers[0][1][2])


def _run_reopening(folder: str, paths: list[str], expected: dict[str, set[str]]) -> tuple[int, float]:
    """Open the store in a new process and compare every result. Return (how many are there, seconds for all of it)."""
    found: dict[str, set[str]] = {}
    with Team(look_again, [Task(_url(folder), os.path.join(folder, "reopened.log"), paths, 0)]) as team:
        team.start()
        began = time.monotonic()
        for told in team.answers():
            if told is not None and told[1][1] == "found":
                found[told[1][0]] = {told[1][2]}
        took_s = time.monotonic() - began
    _expect("results that are still there", len(found), len(expected))
    _expect("whether they are the same", found == expected, True)
    return len(found), took_s


def _findings(folder: str) -> list[str]:
    with Memory(_url(folder) + "?mode=ro") as memory:
        found = memory.session(SESSION).peek(SUMMARY)
    assert isinstance(found, Hit)
    summary = found.value
    top = ", ".join(f"{name} ({count})" for name, count in summary["imported_most"])
    return [
        f"   {summary['lines']:,} lines, {summary['functions']:,} functions; imported by most files: {top}",
        "   longest function: {1} in {0}, {2} lines; most complex: {4} in {3}, {5} paths".format(*summary["longest"], *summary["complexity"]),
    ]


def _table(alone: Round, shared: Round) -> list[str]:
    rows = [
        ("", "without pinfold", "with pinfold"),
        ("results wanted", f"{alone.how.total():,}", f"{shared.how.total():,}"),
        ("executions", f"{alone.executions:,}", f"{shared.executions:,}"),
        ("joins (somebody else was at it)", "-", f"{shared.how['joined']:,}"),
        ("hits (it was there)", "-", f"{shared.how['found']:,}"),
        ("wall-clock", f"{alone.took_s:.1f} s", f"{shared.took_s:.1f} s"),
    ]
    return [f"   {name:<33} {left:>15} {right:>13}" for name, left, right in rows]


_CONNECT = """\
Connect an MCP client (Claude, Cursor, VS Code, ...): it starts `pinfold mcp`, which needs the extra `mcp`:

   pip install '.[mcp]'        # in pinfold's folder
   {"mcpServers": {"pinfold": {"command": "pinfold", "args": ["mcp"]}}}

Several clients may use one store at once; `pinfold where` shows which."""


def run_demo(stdout: TextIO, *, workers: int = WORKERS, files: int = FILES, lease_s: float = LEASE_S) -> int:
    """Show the whole main job on this machine, in about half a minute. Return 0, or 1 where a count was wrong."""
    began = time.monotonic()
    teller = Teller(stdout)
    try:
        with tempfile.TemporaryDirectory(prefix="pinfold-demo-", ignore_cleanup_errors=os.name == "nt") as folder:
            _demonstrate(folder, teller, workers, files, lease_s)
    except (DemoFailed, PinfoldError) as failed:
        teller.say(f"FAILED: {failed}")
        return 1
    teller.say(f"All counts are as they should be. {time.monotonic() - began:.0f} s in all; the temporary folder is gone.")
    teller.say()
    teller.say(_CONNECT)
    return 0


def _demonstrate(folder: str, teller: Teller, workers: int, files: int, lease_s: float) -> None:
    paths = standard_library(files)
    size_bytes = sum(len(_read(path)) for path in paths)  # reading them all also warms the disk cache for both rounds
    teller.say(f"pinfold demo: {workers} worker processes want the same {files} results, out of one SQLite store.")
    teller.say(f"A result is the analysis of one source file of Python {platform.python_version()}'s standard library ({size_bytes / 1e6:.1f} MB in all).")
    teller.say()
    teller.say(f"1. Without pinfold: each of the {workers} does everything itself.")
    alone = _run_round(work_alone, folder, "alone", paths, workers, teller)
    _expect("executions without pinfold", alone.executions, workers * files)
    teller.say("2. With pinfold: peek, claim what nobody has, join what is in flight.")
    shared = _run_round(work_shared, folder, "shared", paths, workers, teller)
    _expect("executions with pinfold", shared.executions, files)
    _expect("results equal to those without pinfold", shared.digests == alone.digests, True)
    teller.say()
    for line in _table(alone, shared):
        teller.say(line)
    teller.say(f"   Each result was made once: {alone.took_s / shared.took_s:.1f} x faster, {alone.executions - shared.executions:,} executions saved.")
    teller.say()
    teller.say(f"3. All want one long result (a summary of all files); its owner is killed in the middle. Lease: {lease_s:g} s.")
    takeover = _run_takeover(folder, paths, workers, lease_s, teller)
    teller.say(f"   worker {takeover.killed} had read {takeover.steps_done} of {files} files when SIGKILL met it")
    teller.say(f"   worker {takeover.owner}, and nobody else, took over {takeover.after_s:.1f} s later: {takeover.executions} executions")
    teller.say(f"   all {takeover.answered} that live got the same result:")
    for line in _findings(folder):
        teller.say(line)
    teller.say()
    teller.say("4. Everything is stopped, and the store is opened again by a new process.")
    kept, took_s = _run_reopening(folder, paths, {**shared.digests, SUMMARY: {takeover.digest}})
    teller.say(f"   {kept} of {files + 1} results are there, each as it was: opened and read in {took_s * 1000:.0f} ms, 0 executions")
    teller.say()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(run_demo(sys.stdout))
