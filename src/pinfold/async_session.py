"""AsyncSession: a Session for asyncio."""

from __future__ import annotations

# What its first use would import, now: it registers hooks for os.fork, and where they appear between the two halves of a fork in
# another thread, its lock is released under whoever holds it.
import concurrent.futures.thread  # noqa: F401
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from pinfold import limits
from pinfold.session import Session, SessionStatus
from pinfold.state.inputs import Input
from pinfold.state.outcomes import Claimed, Hit, Miss, Pending, PromiseState, Rejected
from pinfold.state.value import check_key
from pinfold.steps import drive_async, in_thread

T = TypeVar("T")
P = ParamSpec("P")


def threaded(method: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[AsyncSession, P], Coroutine[Any, Any, T]]:
    """Return a method of Session as one that is awaited: the same arguments, answer and errors, run in a worker thread."""

    async def run(self: AsyncSession, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await in_thread(lambda: method(self._session, *arguments, **options))

    functools.update_wrapper(run, method)
    return run


class AsyncSession:
    """A Session for asyncio: the same methods, awaited. Looking at slots costs no thread; all else runs in worker threads."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    def by(self, actor: str | None) -> AsyncSession:
        """Return this session for another writer, as `Session.by`."""
        return AsyncSession(self._session.by(actor))

    async def peek(self, key: str, *, wait_s: float = 0.0, fresh: bool = False) -> Hit | Pending | Miss | Rejected:
        session = self._session
        found = session.peek(key, fresh=fresh) if session.peeks_in_ram() else await in_thread(lambda: session.peek(key, fresh=fresh))
        if wait_s and found.__class__ is Pending:
            return await drive_async(session._peek_steps(key, wait_s, fresh), session, None)
        return found

    async def claim(
        self, key: str, lease_s: float = limits.LEASE_DEFAULT_S, *, wait_s: float = 0.0, fresh: bool = False, request_id: str | None = None
    ) -> Hit | Pending | Claimed | Rejected:
        check_key(key)
        return await drive_async(self._session._claim_steps(key, lease_s, wait_s, request_id, fresh), self._session, None)

    async def wait(self, key: str, timeout_s: float) -> Hit | Rejected | Pending | Miss:
        return await drive_async(self._session._wait_steps(check_key(key), timeout_s), self._session, None)

    async def once(
        self,
        key: str,
        fn: Callable[[], Awaitable[T]],
        *,
        ttl_s: float | None = None,
        lease_s: float = limits.LEASE_DEFAULT_S,
        timeout_s: float | None = None,
        inputs: Iterable[str | Input] | None = None,
        fresh: bool = True,
    ) -> T:
        hit = await self.once_hit(key, fn, ttl_s=ttl_s, lease_s=lease_s, timeout_s=timeout_s, inputs=inputs, fresh=fresh)
        return cast(T, hit.value)

    async def once_hit(
        self, key: str, fn: Callable[[], Awaitable[Any]], *, inputs: Iterable[str | Input] | None = None, fresh: bool = True, **options: Any
    ) -> Hit:
        """Return what `once` does, as `Session.once_hit`."""
        found = await self.peek(key)
        if type(found) is Hit and ((inputs is None and found.because is None) or not fresh):
            self._session._replica.touches.avoided += 1
            return found
        steps = self._session._once_steps(
            check_key(key), options.get("ttl_s"), options.get("lease_s", limits.LEASE_DEFAULT_S), options.get("timeout_s"), inputs, fresh
        )
        return await drive_async(steps, self._session, fn)

    def cached(
        self,
        *,
        ttl_s: float | None = None,
        lease_s: float = limits.LEASE_DEFAULT_S,
        key: Callable[..., str] | None = None,
        name: str | None = None,
        inputs: Iterable[str] | Callable[..., Iterable[str]] | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        return self._session.cached(ttl_s=ttl_s, lease_s=lease_s, key=key, name=name, inputs=inputs)

    def keys(self, prefix: str = "") -> list[str]:
        return self._session.keys(prefix)

    def promise(self, promise_id: str) -> PromiseState:
        return self._session.promise(promise_id)

    def status(self) -> SessionStatus:
        return self._session.status()

    # Slots and promises.
    set = threaded(Session.set)
    fulfil = threaded(Session.fulfil)
    reject = threaded(Session.reject)
    release = threaded(Session.release)
    renew = threaded(Session.renew)
    register = threaded(Session.register)
    resolve = threaded(Session.resolve)
    drop = threaded(Session.drop)
    forget = threaded(Session.forget)
    flush = threaded(Session.flush)

    # The graph by lines.
    mutate = threaded(Session.mutate)
    add = threaded(Session.add)
    update = threaded(Session.update)
    delete = threaded(Session.delete)
    pin_map = threaded(Session.pin_map)
    walk = threaded(Session.walk)
    neighbors = threaded(Session.neighbors)
    path = threaded(Session.path)
    get = threaded(Session.get)
    find = threaded(Session.find)
    schema = threaded(Session.schema)
    graph_counts = threaded(Session.graph_counts)
    housekeep = threaded(Session.housekeep)
    ingest = threaded(Session.ingest)

    # Long-term memory.
    remember = threaded(Session.remember)
    upsert_node = threaded(Session.upsert_node)
    create_relation = threaded(Session.create_relation)
    add_interlinked = threaded(Session.add_interlinked)
    prune = threaded(Session.prune)
    search = threaded(Session.search)
    traverse = threaded(Session.traverse)
    resolve_context = threaded(Session.resolve_context)
    promote = threaded(Session.promote)
    embed_rows = threaded(Session.embed_rows)
    long_term_counts = threaded(Session.long_term_counts)

    # What rests on what.
    note = threaded(Session.note)
    set_version = threaded(Session.set_version)
    stale = threaded(Session.stale)
    why = threaded(Session.why)
    refresh_list = threaded(Session.refresh_list)
    reaffirm = threaded(Session.reaffirm)
    supersede = threaded(Session.supersede)
    conflicts = threaded(Session.conflicts)

    # History and settings.
    log = threaded(Session.log)
    at = threaded(Session.at)
    diff = threaded(Session.diff)
    undo = threaded(Session.undo)
    blame = threaded(Session.blame)
    merge_from = threaded(Session.merge_from)
    configure = threaded(Session.configure)
    state_hash = threaded(Session.state_hash)
    confirm = threaded(Session.confirm)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await in_thread(self._session._replica.flush_touches)
