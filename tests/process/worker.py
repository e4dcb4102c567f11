"""What the processes of these tests do: functions of (link, url, …), where link is their end of a pipe. No pytest here."""

import os
import random
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from pinfold import Claimed, Hit, Memory
from pinfold.errors import PinfoldError, Refused
from pinfold.fold import load_state
from pinfold.state.session import state_hash


def run(job: Callable[..., None], link: Connection, *arguments: object) -> None:
    """Do a job; a pinfold error is told like any other event."""
    try:
        job(link, *arguments)
    except PinfoldError as error:
        link.send({"error": error.code, "message": str(error)})


def race(link: Connection, url: str, keys: str) -> None:
    """Want every key; say which were executed here."""
    with Memory(url) as memory:
        session = memory.session("race")
        names = [f"key-{n}" for n in range(int(keys))]
        random.shuffle(names)
        executed: list[str] = []

        def work(name: str) -> str:
            executed.append(name)
            return f"result of {name}"

        link.send({"ready": True})
        link.recv()
        wrong = [name for name in names if session.once(name, lambda name=name: work(name)) != f"result of {name}"]
        link.send({"executed": executed, "wrong": wrong})


def own(link: Connection, url: str, key: str) -> None:
    """Claim and never come back."""
    with Memory(url, actor=f"pid {os.getpid()}") as memory:
        memory.session("race").once(key, lambda: link.send({"executing": key}) or threading.Event().wait(), lease_s=5.0)


def want(link: Connection, url: str, key: str) -> None:
    """Join whoever works on key, or do it."""
    with Memory(url) as memory:
        session = memory.session("race")
        link.send({"ready": session.peek(key).hit})
        value = session.once(key, lambda: link.send({"executing": key}) or "done", lease_s=30)
        link.send({"value": value})


def wait(link: Connection, url: str, key: str) -> None:
    """Wait for the outcome of key; say when waiting and what came."""
    with Memory(url) as memory:
        session = memory.session("race")
        link.send({"ready": True})
        outcome = session.wait(key, 20)
        link.send({"outcome": type(outcome).__name__, "value": getattr(outcome, "value", None), "reason": getattr(outcome, "reason", None)})


def write(link: Connection, url: str, seed: str) -> None:
    """Write until killed, and say what was acknowledged: a set, a fulfilled claim, a large value now and then."""
    dice = random.Random(int(seed))
    tag = f"{os.getpid()}-{seed}"
    memory = Memory(url, actor=tag)
    session = memory.session("soak")
    n = 0
    while True:
        n += 1
        key, value = f"{dice.randrange(60)}", f"{tag}:{n}"
        try:
            if n % 7 == 0:
                session.set(f"large {tag}", value.encode() + bytes(40_000))
                continue
            if n % 5 == 0:
                session.drop(key)
            claim = session.claim(key, lease_s=0.05)
            if isinstance(claim, Claimed):
                session.fulfil(claim, value)
            elif isinstance(claim, Hit):
                session.set(key, value)
            else:
                continue
        except Refused:
            continue  # somebody took over meanwhile
        link.send({"ok": value})
        if n % 50 == 0:
            session._replica.compact()


def state(link: Connection, url: str) -> None:
    """Follow the store to its end and say what it holds: the hash of RAM, that of a fresh load, the last seq."""
    with Memory(url) as memory:
        session = memory.session("soak")
        link.send({"ready": True})
        link.recv()
        status = session.status()
        link.send({"ram": state_hash(session._replica.state), "disk": state_hash(load_state(memory._journal, "soak")), "seq": status.seq})


def sets(link: Connection, url: str, key: str) -> None:
    """One write of a short-lived process, as a shell loop makes them."""
    with Memory(url, background=False) as memory:
        memory.session("shell").set(key, f"by {os.getpid()}")


def in_network(link: Connection, namespace: str, job: Callable[..., None], *arguments: object) -> None:
    """Do a job inside a named network namespace: what it reaches is what leads out of there."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as entry:
        if libc.setns(entry.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    job(link, *arguments)


def settle(link: Connection, url: str, key: str, value: str) -> None:
    """Claim key; when told to, fulfil it."""
    with Memory(url) as memory:
        session = memory.session("race")
        claim = session.claim(key, 60)
        link.send({"claimed": isinstance(claim, Claimed)})
        link.recv()
        if isinstance(claim, Claimed):
            session.fulfil(claim, value)
        link.send({"settled": True})


def look(link: Connection, url: str) -> None:
    """Say whether the store can be reached."""
    with Memory(url) as memory:
        link.send({"hit": memory.session("race").peek("nothing").hit})
