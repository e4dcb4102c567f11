"""Journals in Redis or Valkey >= 7, one server or a cluster: `redis://`, `rediss://`, `redis+cluster://host:port,host:port`.

All keys of a session, and of its later incarnations, lie in one hash slot. An append is one script: compare with the head,
add to the stream, or answer what was missed. With replicas it is acknowledged only once `WAIT` says that enough of them have
it; a reader applies a record only once it knows the same, from the head or by a `WAIT` of its own. So what anybody acted on
survives the loss of a primary, as long as a replica that was waited for is the one promoted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pinfold.entry import GENESIS, Record
from pinfold.errors import ConfigurationError, JournalCorrupt, NewerFormat, PinfoldError, Unavailable
from pinfold.journal import redis_scripts as scripts
from pinfold.journal.base import Conflict, SessionInfo, Snapshot
from pinfold.journal.contention import RESERVED_MS, Contention, Queue
from pinfold.journal.heads import Heads
from pinfold.journal.offset import ServerClock
from pinfold.journal.redis_nodes import Command, Nodes, Settings, raise_not_redis
from pinfold.journal.redis_scripts import Script

STORE_FORMAT = 1
INDEXES = 16
"""Keys that the names of sessions are spread over, so that no shard of a cluster has to hold them all."""
PAGE = 512
"""Records in one reply."""
CHUNK_BYTES = 8 << 20
"""A snapshot goes up in parts: no reply or command of the server's is longer than a large value."""
UPLOAD_S = 3600
"""An upload that was not finished is dropped by the server after this."""
VERSION = (7, 0)


class _Keys:
    """The keys of one session."""

    __slots__ = ("blobs", "derived", "head", "incarnation", "incarnations", "index", "look", "named", "prefix", "put", "stream")

    def __init__(self, store: str, session: str) -> None:
        name, _, number = session.partition("@")
        self.incarnation = (number or "1").encode()
        base = f"{store}:{{{name}}}"
        own = f"{base}:{number or '1'}:"
        self.head, self.stream, self.blobs, self.put, self.named, self.index, self.derived, self.look = (f"{own}{end}".encode() for end in "hebpnsdl")
        self.incarnations = f"{base}:i".encode()
        self.prefix = f"{own}u:".encode()


class RedisJournal:
    """A store in a Redis or Valkey server or cluster. Threads, processes, forks and machines may share it.

    replicas: how many must have a write before it is acknowledged; None: as the store says, 1 where replicas exist.
    durability: "full" also waits until the write is in the append-only file of the primary and of those replicas.
    wait_ms: how long to wait for them. max_stale_ms: how long a look at the head may serve reads from RAM.
    confirm: no read without proof that the server that answers is still the primary.
    """

    local = False

    def __init__(
        self,
        settings: Settings,
        *,
        prefix: str = "pinfold",
        replicas: int | None = None,
        durability: str = "normal",
        wait_ms: int = 2000,
        max_stale_ms: int = 0,
        confirm: bool = False,
    ) -> None:
        self.url = settings.url
        self.replicas = replicas or 0
        self._asked_replicas = replicas
        self._full = durability == "full"
        self._wait_ms = wait_ms
        self._confirm = confirm
        self._prefix = prefix
        self._nodes = Nodes(settings)
        self._cluster = settings.cluster
        self._keys: dict[str, _Keys] = {}
        self._ready = False
        self._lock = threading.Lock()
        self._clock = ServerClock()
        self._contention = Contention()
        self._heads = Heads(max_stale_ms)
        self._read_only = False
        self.notes: list[str] = []
        """What an operator should know about how this store is set up."""
        self._new_deliveries()

    def _new_deliveries(self) -> None:
        self._delivery, self._deliveries = os.urandom(8), 0

    def _next_delivery(self) -> bytes:
        with self._lock:
            self._deliveries += 1
            return self._delivery + (self._deliveries & 0xFFFFFFFF).to_bytes(4, "big")

    # --- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Look at the servers once: version, replicas, what they may evict; and at the store's own mark."""
        infos = [_parse_info(self.url, reply) for reply in self._nodes.everywhere("INFO")]
        for info in infos:
            version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
            if version < VERSION:
                raise ConfigurationError(f"{self.url} runs version {info['redis_version']}", code="wrong_version", hint="use Redis or Valkey >= 7")
            if info.get("cluster_enabled") == "1" and not self._cluster:
                raise ConfigurationError(f"{self.url} is a node of a cluster", code="is_cluster", hint="write redis+cluster://host:port,host:port")
            if info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy", "").startswith("allkeys"):
                raise ConfigurationError(
                    f"{self.url} may evict any key ({info['maxmemory_policy']}): memory would be lost", code="evicting", hint="set maxmemory-policy noeviction"
                )
            if self._full and info.get("aof_enabled") != "1":
                raise ConfigurationError(f"{self.url} keeps no append-only file", code="no_aof", hint="set appendonly yes, or leave durability=full out")
            if self._full and version < (7, 2):
                raise ConfigurationError(f"{self.url} knows no WAITAOF", code="wrong_version", hint="durability=full needs Redis or Valkey >= 7.2")
        self._read_only = not self._cluster and infos[0].get("role") == "slave"
        found = max((int(info.get("connected_slaves", "0")) for info in infos), default=0)
        self._check_store(1 if found or self._nodes.replicas_known else 0)
        if not self.replicas:
            self.notes.append("acknowledged by one server alone: a failover may lose the last writes (replicas=0)")
        elif all(info.get("min_slaves_good_slaves") is None for info in infos):
            self.notes.append("min-replicas-to-write is 0: a primary that is cut off takes writes it will lose, none of them acknowledged")
        self._ready = True

    def _check_store(self, found: int) -> None:
        """Read or write the store's mark: its format, and how many replicas its writes wait for."""
        key = f"{self._prefix}:{{store}}".encode()
        if not self._read_only:
            self._nodes.run(key, [("HSETNX", key, "format", STORE_FORMAT)], writes=True)
        reply = self._nodes.run(key, [("HGETALL", key)])[0]
        mark = dict(zip(reply[::2], reply[1::2], strict=True))
        if int(mark.get(b"format", STORE_FORMAT)) > STORE_FORMAT:
            raise NewerFormat(f"{self.url} has store format {mark[b'format'].decode()}, this pinfold knows {STORE_FORMAT}", hint="upgrade pinfold")
        if self._asked_replicas is None:
            known = int(mark.get(b"replicas", 0))
            self.replicas = max(known, found)
            if self.replicas > known and not self._read_only:
                self._nodes.run(key, [("HSET", key, "replicas", self.replicas)], writes=True)

    # --- asking -------------------------------------------------------------------------------------------------

    def _of(self, session: str) -> _Keys:
        if not self._ready:
            self._open()
        keys = self._keys.get(session)
        if keys is None:
            if len(self._keys) > 50_000:
                self._keys.clear()
            keys = self._keys[session] = _Keys(self._prefix, session)
        return keys

    def _ask(self, keys: _Keys, *command: Any) -> Any:
        return self._nodes.run(keys.head, [command])[0]

    def _script(self, keys: _Keys, script: Script, names: Sequence[bytes], *arguments: Any) -> Any:
        command: Command = ("EVALSHA", script.sha, len(names), *names, *arguments)
        return self._nodes.run(keys.head, [command], body=script.body, writes=True)[0]

    def _confirmed(self, keys: _Keys, script: Script, names: Sequence[bytes], *arguments: Any) -> tuple[Any, bool]:
        """Return a script's answer, and whether enough replicas have what it wrote: one packet, one connection."""
        command: Command = ("EVALSHA", script.sha, len(names), *names, *arguments)
        waits = self.replicas > 0 or self._full
        if not waits or self._read_only:
            return self._nodes.run(keys.head, [command], body=script.body, writes=True)[0], True
        wait: Command = ("WAITAOF", 1, self.replicas, self._wait_ms) if self._full else ("WAIT", self.replicas, self._wait_ms)
        answer, waited = self._nodes.run(keys.head, [command, wait], body=script.body, writes=True, wait_s=self._wait_ms / 1000)
        if isinstance(waited, BaseException):
            return answer, False
        return answer, waited[0] >= 1 and waited[1] >= self.replicas if self._full else waited >= self.replicas

    def _unconfirmed(self, session: str, applied: bool) -> Unavailable:
        what = "was written and may yet be lost" if applied else "holds entries that may yet be lost"
        return Unavailable(
            f"session {session!r} {what}: fewer than {self.replicas} replicas answered within {self._wait_ms} ms",
            code="unconfirmed",
            hint="try again with the same request_id; `replicas=0` in the URL does without",
            maybe_applied=applied,
        )

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, session: str, after: int, limit: int | None = None) -> list[Record]:
        keys = self._of(session)
        records: list[Record] = []
        while limit is None or len(records) < limit:
            page = PAGE if limit is None else min(PAGE, limit - len(records))
            found = self._page(session, keys, after, page)
            records += found
            if len(found) < page:
                break
            after = found[-1].seq
        return records

    def _page(self, session: str, keys: _Keys, after: int, limit: int) -> list[Record]:
        if (not self.replicas and not self._full) or self._read_only:
            return _records(self._ask(keys, "XRANGE", keys.stream, f"({after}-0", "+", "COUNT", limit))
        (unknown, rows), confirmed = self._confirmed(keys, scripts.READ, (keys.head, keys.stream), after, limit, self._next_delivery())
        records = _records(rows)
        if unknown:
            if not confirmed:
                raise self._unconfirmed(session, False)
            self._script(keys, scripts.CONFIRM, (keys.head, keys.stream), records[-1].seq, records[-1].hash)
        return records

    def version(self, session: str, confirm: bool = False) -> int:
        confirm = confirm or self._confirm
        if not confirm and (recent := self._heads.recent(session)) is not None:
            return recent
        asked_s = time.monotonic()
        keys = self._of(session)
        return self._heads.looked(session, self._confirmed_head(session, keys) if confirm else self._ask(keys, "HGET", keys.head, "h"), asked_s)

    def _confirmed_head(self, session: str, keys: _Keys) -> bytes | None:
        """Return the head's hash, and be sure of it: a write in the same step that the replicas have, too, can only be a primary's."""
        self._refuse_read_only("what it holds may be old")
        last, confirmed = self._confirmed(keys, scripts.LOOK, (keys.head, keys.look), self._next_delivery())
        if not confirmed:
            raise self._unconfirmed(session, False)
        found: bytes | None = last
        return found

    def wait(self, session: str, after: int, timeout_s: float) -> bool:
        keys = self._of(session)
        until_s = time.monotonic() + timeout_s
        while True:
            left_ms = int((until_s - time.monotonic()) * 1000)
            if left_ms <= 0:
                return bool(self._ask(keys, "XRANGE", keys.stream, f"({after}-0", "+", "COUNT", 1))
            left_ms = min(left_ms, 2000)  # a node that lost its slot, or its life, is noticed
            command: Command = ("XREAD", "COUNT", 1, "BLOCK", left_ms, "STREAMS", keys.stream, f"{after}-0")
            if self._nodes.run(keys.head, [command], wait_s=left_ms / 1000)[0]:
                return True

    def now_ms(self) -> int:
        if not self._clock.known:
            key = f"{self._prefix}:{{store}}".encode()
            if not self._ready:
                self._open()
            asked_s = time.monotonic()
            seconds, micros = self._nodes.run(key, [("TIME",)])[0]
            self._clock.note(int(seconds) * 1000 + int(micros) // 1000, asked_s, time.monotonic())
        return self._clock.now_ms()

    # --- writing ------------------------------------------------------------------------------------------------

    def write_lock(self, session: str, timeout_s: float) -> AbstractContextManager[Any]:
        return self._contention.turn(session, self._release)

    def _release(self, session: str, token: bytes) -> None:
        keys = self._of(session)
        try:
            self._script(keys, scripts.RELEASE, (keys.head,), token)
        except PinfoldError:
            pass  # it ends by itself

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        keys = self._of(session)
        self._refuse_read_only()
        first = after_hash == GENESIS
        if first:
            self._note_session(session)
        names: tuple[bytes, ...] = (keys.head, keys.stream)
        if blobs or first:
            names += (keys.blobs, keys.put, keys.named, keys.incarnations)
        values: list[Any] = []
        for record in records:
            values += (record.seq, record.hash, record.body)
        for name, body in blobs.items():
            values += (name, body)
        confirm = 1 if self.replicas or self._full else 0
        at_ms = self.now_ms() if blobs else 0
        incarnation = keys.incarnation if first else b""
        reserve_ms = RESERVED_MS * self._contention.reserves(session)
        token = self._contention.token()
        fixed = (after, after_hash, self._next_delivery(), confirm, PAGE, at_ms, incarnation, len(records), len(blobs), token, reserve_ms)
        queue: Queue | None = None
        while True:
            asked_s = time.monotonic()
            answer, confirmed = self._confirmed(keys, scripts.APPEND, names, *fixed, *values)
            if not confirm:  # a reply that waited for replicas says little about the time
                self._clock.note(answer[1], asked_s, time.monotonic())
            if answer[0] != 3:
                break
            queue = queue or Queue(session)
            queue.wait()
        if answer[0] == 0:
            if not confirmed:
                raise self._unconfirmed(session, False)
            self._contention.lost(session, reserve_ms > 0)
            missing = _records(answer[2])
            return Conflict(missing + self.read(session, missing[-1].seq) if len(missing) == PAGE else missing)
        if not confirmed:
            raise self._unconfirmed(session, True)
        self._contention.won(session)
        self._heads.appended(session, after_hash, records[-1].hash, asked_s)
        return None

    def _refuse_read_only(self, what: str = "nothing was written") -> None:
        if self._read_only:
            raise Unavailable(f"the server of {self.url} is a read-only replica; {what}", code="read_only", hint="use the primary's URL")

    def _note_session(self, session: str) -> None:
        """List a session before its first record is there: one that is listed too early is looked at and passed over."""
        key = self._index_of(session)
        self._nodes.run(key, [("SADD", key, session)], writes=True)

    def _index_of(self, session: str) -> bytes:
        return f"{self._prefix}:{{index-{sum(session.encode()) % INDEXES}}}".encode()

    def begin(self, session: str, last: Record, snapshot: Snapshot, blobs: Mapping[bytes, bytes]) -> bool:
        keys = self._of(session)
        self._refuse_read_only()
        self._note_session(session)
        upload = self._upload(keys, snapshot)
        values = [part for name, body in blobs.items() for part in (name, body)]
        names = (keys.head, keys.stream, keys.blobs, keys.put, keys.named, keys.incarnations, keys.index)
        mark = (keys.prefix, self._next_delivery(), self.now_ms(), keys.incarnation, last.seq, last.hash, last.body)
        kept = (upload, snapshot.seq, snapshot.hash, len(snapshot.body), b"".join(snapshot.blobs))
        answer, confirmed = self._confirmed(keys, scripts.BEGIN, names, *mark, *kept, len(blobs), *values)
        if answer and not confirmed:
            raise self._unconfirmed(session, True)
        return bool(answer)

    def rewrite(self, session: str, after: int, after_hash: bytes, records: Sequence[tuple[Record, list[bytes]]], snapshots: Sequence[Snapshot]) -> bool:
        keys = self._of(session)
        self._refuse_read_only()
        values: list[Any] = []
        for record, named in records:
            values += (record.seq, record.hash, record.body, b"".join(named))
        for snapshot in snapshots:
            values += (snapshot.seq, self._upload(keys, snapshot), snapshot.hash, len(snapshot.body), b"".join(snapshot.blobs))
        names = (keys.head, keys.stream, keys.named, keys.index, keys.derived)
        fixed = (keys.prefix, self._next_delivery(), after, after_hash, len(records), len(snapshots))
        answer, confirmed = self._confirmed(keys, scripts.REWRITE, names, *fixed, *values)
        if answer and not confirmed:
            raise self._unconfirmed(session, True)
        if answer:
            self._note_garbage(session)
        return bool(answer)

    # --- snapshots ----------------------------------------------------------------------------------------------

    def _upload(self, keys: _Keys, snapshot: Snapshot) -> bytes:
        """Return the id of a snapshot's bytes, sent in parts under a key of their own, which ends unless it is kept."""
        upload = os.urandom(6).hex().encode()
        key = keys.prefix + upload
        for start in range(0, len(snapshot.body) or 1, CHUNK_BYTES):
            part = snapshot.body[start : start + CHUNK_BYTES]
            self._nodes.run(keys.head, [("HSET", key, start // CHUNK_BYTES, part), ("EXPIRE", key, UPLOAD_S)], writes=True)
        return upload

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        keys = self._of(session)
        self._refuse_read_only()
        upload = self._upload(keys, snapshot)
        kept = (snapshot.seq, upload, snapshot.hash, len(snapshot.body), b"".join(snapshot.blobs))
        self._script(keys, scripts.SAVE_SNAPSHOT, (keys.head, keys.stream, keys.index), keys.prefix, *kept)
        self._note_garbage(session)

    def load_snapshots(self, session: str, limit: int | None = None) -> list[Snapshot]:
        keys = self._of(session)
        for _ in range(8):
            reply = self._ask(keys, "HGETALL", keys.index)
            index = sorted(((int(seq), kept) for seq, kept in zip(reply[::2], reply[1::2], strict=True)), reverse=True)[:limit]
            found = [self._download(keys, seq, kept) for seq, kept in index]
            if None not in found:
                break  # else one was replaced between the two looks
        else:
            raise JournalCorrupt(f"a snapshot of session {session!r} is listed and not there", hint="run `pinfold doctor`")
        return [snapshot for snapshot in found if snapshot is not None]

    def _download(self, keys: _Keys, seq: int, kept: bytes) -> Snapshot | None:
        upload, hash, size = kept[:12], kept[12:28], int(kept[28:44], 16)
        parts: list[bytes] = []
        for place in range(max(1, -(-size // CHUNK_BYTES))):
            part = self._ask(keys, "HGET", keys.prefix + upload, place)
            if part is None:
                return None
            parts.append(part)
        return Snapshot(seq, hash, parts[0] if len(parts) == 1 else b"".join(parts))

    def trim(self, session: str, up_to: int, blobs_up_to: int, *, only: Sequence[bytes] | None = None, base: Snapshot | None = None) -> None:
        keys = self._of(session)
        self._refuse_read_only()
        kept: tuple[Any, ...] = (b"", 0, b"", 0, b"")
        if base is not None:
            kept = (self._upload(keys, base), base.seq, base.hash, len(base.body), b"".join(base.blobs))
        names = (keys.head, keys.stream, keys.named, keys.index)
        self._script(keys, scripts.TRIM, names, keys.prefix, up_to, blobs_up_to, 0 if only is None else 1, *kept, *(only or ()))
        self._note_garbage(session)

    # --- blobs --------------------------------------------------------------------------------------------------

    def put_blob(self, session: str, sha256: bytes, body: bytes) -> None:
        keys = self._of(session)
        self._refuse_read_only()
        self._script(keys, scripts.PUT_BLOB, (keys.head, keys.stream, keys.blobs, keys.put), sha256, body, self.now_ms())
        self._note_garbage(session)

    def get_blob(self, session: str, sha256: bytes) -> bytes | None:
        keys = self._of(session)
        found: bytes | None = self._ask(keys, "HGET", keys.blobs, sha256)
        return found

    def _garbage(self) -> bytes:
        return f"{self._prefix}:{{garbage}}".encode()

    def _note_garbage(self, session: str) -> None:
        """List a session that may have blobs nobody names, so that collecting looks at those alone."""
        self._nodes.run(self._garbage(), [("SADD", self._garbage(), session)], writes=True)

    def collect_blobs(self, put_before_ms: int, only: Sequence[bytes] | None = None) -> tuple[int, int]:
        if not self._ready:
            self._open()
        count = size = 0
        for name in self._nodes.run(self._garbage(), [("SMEMBERS", self._garbage())])[0]:
            session = name.decode()
            keys = self._of(session)
            names = (keys.head, keys.stream, keys.blobs, keys.put, keys.named, keys.index)
            gone, freed, left = self._script(keys, scripts.COLLECT, names, put_before_ms, 0 if only is None else 1, *(only or ()))
            count, size = count + gone, size + freed
            if not left:
                self._nodes.run(self._garbage(), [("SREM", self._garbage(), name)], writes=True)
        return count, size

    def put_derived(self, session: str, name: str, body: bytes) -> None:
        keys = self._of(session)
        self._refuse_read_only()
        self._script(keys, scripts.PUT_DERIVED, (keys.head, keys.derived), name, body)

    def get_derived(self, session: str, name: str) -> bytes | None:
        keys = self._of(session)
        found: bytes | None = self._ask(keys, "HGET", keys.derived, name)
        return found

    # --- sessions -----------------------------------------------------------------------------------------------

    def sessions(self) -> list[SessionInfo]:
        names, infos = self._names(), []
        for start in range(0, len(names), PAGE):
            some = names[start : start + PAGE]
            replies = self._nodes.look([(self._of(name).head, self._info_commands(name)) for name in some])
            for name, reply in zip(some, replies, strict=True):
                info = self.info(name) if reply is None else _info_of(name, *reply)
                if info is not None:
                    infos.append(info)
        return infos

    def _names(self) -> list[str]:
        if not self._ready:
            self._open()
        return sorted(set(self._listed()))

    def _listed(self) -> Iterator[str]:
        for number in range(INDEXES):
            key, cursor = f"{self._prefix}:{{index-{number}}}".encode(), b"0"
            while True:
                cursor, names = self._nodes.run(key, [("SSCAN", key, cursor, "COUNT", 1000)])[0]
                for name in names:
                    yield name.decode()
                if cursor == b"0":
                    break

    def incarnations(self, name: str) -> list[str]:
        keys = self._of(name)
        numbers = self._ask(keys, "SMEMBERS", keys.incarnations)
        return [name if number == b"1" else f"{name}@{number.decode()}" for number in numbers]

    def info(self, session: str) -> SessionInfo | None:
        return _info_of(session, *self._nodes.run(self._of(session).head, self._info_commands(session)))

    def _info_commands(self, session: str) -> list[Command]:
        keys = self._of(session)
        return [("HMGET", keys.head, "s", "n", "p", "q"), ("XLEN", keys.stream), ("XRANGE", keys.stream, "-", "+", "COUNT", 1)]

    def drop(self, session: str) -> None:
        keys = self._of(session)
        self._refuse_read_only()
        names = (keys.head, keys.stream, keys.blobs, keys.put, keys.named, keys.incarnations, keys.index, keys.derived)
        self._script(keys, scripts.DROP, names, keys.prefix, keys.incarnation)
        key = self._index_of(session)
        self._nodes.run(key, [("SREM", key, session)], writes=True)

    # --- life ---------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._contention = Contention()
        self._heads.after_fork()
        self._new_deliveries()
        self._nodes.after_fork()

    def close(self) -> None:
        self._nodes.close()


def _info_of(session: str, head: list[Any], entries: int, first: list[Any]) -> SessionInfo | None:
    if head[0] is None:
        return None
    before = int(first[0][1][7]) if first else 0
    return SessionInfo(session, int(head[0]), entries, int(head[1]) - before, *(int(size or 0) for size in head[2:]))


def _records(rows: Sequence[Any]) -> list[Record]:
    return [Record(int(id[:-2]), fields[1], fields[3]) for id, fields in rows]


def _parse_info(url: str, reply: Any) -> dict[str, str]:
    if not isinstance(reply, bytes):
        raise_not_redis(url, reply if isinstance(reply, BaseException) else TypeError(repr(reply)))
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    info = {name: value.strip() for name, _, value in lines}
    if "redis_version" not in info:
        raise_not_redis(url, KeyError("redis_version"))
    return info
