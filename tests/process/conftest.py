"""Real processes for tests: forked from a server that has pinfold loaded, spoken to over a pipe, killed without asking."""

import multiprocessing
from collections.abc import Callable, Iterator

import pytest
import worker

BOUND_S = 60.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["pinfold", "pinfold.engine", "pinfold.journal.sqlite"])


class Worker:
    """One process that does a job of worker.py. `next` is the next event it told."""

    def __init__(self, job: Callable[..., None], *arguments: object) -> None:
        self.link, theirs = _processes.Pipe()
        self.process = _processes.Process(target=worker.run, args=(job, theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def next(self) -> dict:
        if not self.link.poll(BOUND_S):
            raise AssertionError(f"no event within {BOUND_S:g} s; alive: {self.process.is_alive()}")
        event = self.link.recv()
        assert "error" not in event, event
        return event

    def go(self) -> None:
        self.link.send("go")

    def kill(self) -> list[dict]:
        """SIGKILL; return all events that are still unread."""
        self.process.kill()
        return self.end()

    def end(self) -> list[dict]:
        """Wait for its end; return all events that are still unread."""
        left = []
        try:
            while True:
                left.append(self.next())
        except (EOFError, ConnectionResetError):
            pass
        self.process.join(BOUND_S)
        return left

    def close(self) -> None:
        self.process.kill()
        self.process.join(BOUND_S)
        self.process.close()
        self.link.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    """A function that starts a worker process; none outlives the test."""
    started: list[Worker] = []

    def start_one(job: Callable[..., None], *arguments: object) -> Worker:
        started.append(Worker(job, *arguments))
        return started[-1]

    yield start_one
    for process in started:
        process.close()
