"""Claim and fulfil between processes that share no network but a wire to the server: as on machines of their own."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Postgres, Valkey, free_port

from pinfold.journal.open import migrate_store

PROCESS = Path(__file__).parent.parent / "process"
sys.path.append(str(PROCESS))

import worker  # noqa: E402

_spec = importlib.util.spec_from_file_location("process_conftest", PROCESS / "conftest.py")
assert _spec is not None and _spec.loader is not None
_processes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_processes)

pytestmark = pytest.mark.requirement("processes", "one-winner", "wake-up")

NET = f"10.231.{os.getpid() % 250}"
"""Two wires, one to each namespace: .1 and .5 are here, .2 and .6 there."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def networks() -> Iterator[list[str]]:
    """The names of two network namespaces, each with a wire to this one and nothing else."""
    if not hasattr(os, "getuid") or os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("NOT TESTED: network namespaces need Linux, root and `ip` (iproute2)")
    made: list[str] = []
    try:
        for number in range(2):
            name, here, there = f"pinfold{os.getpid()}-{number}", f"pfa{os.getpid() % 10**8}{number}", f"pfb{os.getpid() % 10**8}{number}"
            try:
                ip("netns", "add", name)
                made.append(name)
                ip("link", "add", here, "type", "veth", "peer", "name", there)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"NOT TESTED: network namespaces are not to be had here: {error.stderr.decode().strip()}")
            ip("link", "set", there, "netns", name)
            ip("addr", "add", f"{NET}.{number * 4 + 1}/30", "dev", here)
            ip("link", "set", here, "up")
            ip("-n", name, "addr", "add", f"{NET}.{number * 4 + 2}/30", "dev", there)
            ip("-n", name, "link", "set", there, "up")
        yield made
    finally:
        for name in made:
            ip("netns", "del", name)  # its wire goes with it


@pytest.fixture(params=["redis", "postgres"])
def urls(request: pytest.FixtureRequest, networks: list[str], tmp_path: Path) -> Iterator[list[str]]:
    """The URLs of one store: at loopback, at the first and at the second wire."""
    hosts = ["127.0.0.1", f"{NET}.1", f"{NET}.5"]
    request.getfixturevalue(f"{request.param}_driver")
    if request.param == "redis":
        valkey = Valkey(tmp_path, "--bind", *hosts, "--protected-mode", "no").start()
        yield [f"redis://{host}:{valkey.port}" for host in hosts]
        valkey.kill()
        return
    place = request.getfixturevalue("postgres_place") / f"net-{free_port()}"
    server = Postgres(place, "fsync=off", f"listen_addresses={','.join(hosts)}").create()
    with open(place / "data" / "pg_hba.conf", "a", encoding="ascii") as rules:
        rules.write(f"host all all {NET}.0/24 trust\n")
    server.start()
    migrate_store(server.url)
    yield [server.url.replace("127.0.0.1", host) for host in hosts]
    server.stop()


@pytest.fixture
def start(networks: list[str]) -> Iterator[Callable[..., "_processes.Worker"]]:
    """A function that starts a worker in the first or second network; none outlives the test."""
    started = []

    def start_one(number: int, job, *arguments):
        started.append(_processes.Worker(worker.in_network, networks[number], job, *arguments))
        return started[-1]

    yield start_one
    for process in started:
        process.close()


def test_processes_in_networks_of_their_own_claim_wait_and_fulfil(start, urls):
    loopback, first, second = urls
    for number in range(2):
        lost = start(number, worker.look, f"{loopback}?retry_ms=100&timeout_ms=400")
        with pytest.raises(AssertionError, match="server_down"):
            lost.next()
    owner = start(0, worker.settle, first, "job", "from the first network")
    assert owner.next() == {"claimed": True}
    waiter, rival = start(1, worker.wait, second, "job"), start(1, worker.settle, second, "job", "never")
    assert waiter.next() == {"ready": True}
    assert rival.next() == {"claimed": False}
    owner.go()
    assert waiter.next() == {"outcome": "Hit", "value": "from the first network", "reason": None}


def test_racers_in_two_networks_do_each_work_once(start, urls):
    _, first, second = urls
    racers = [start(number % 2, worker.race, (first, second)[number % 2], "30") for number in range(4)]
    for racer in racers:
        assert racer.next() == {"ready": True}
    for racer in racers:
        racer.go()
    results = [racer.next() for racer in racers]
    assert [result["wrong"] for result in results] == [[]] * 4
    assert sorted(name for result in results for name in result["executed"]) == sorted(f"key-{n}" for n in range(30))
