"""AsyncSession: a Session for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from pinfold import limits
from pinfold.session import LogRow, Session, SessionStatus
from pinfold.state.inputs import Input
from pinfold.state.outcomes import Claimed, Dropped, Flushed, Forgotten, Hit, Miss, Pending, PromiseState, Rejected, Renewed, Settled, Stored
from pinfold.state.value import check_key
from pinfold.steps import drive_async, in_thread

T = TypeVar("T")
P = ParamSpec("P")


class AsyncSession:
    """A Session for asyncio: the same methods, awaited. Reads come from RAM; journal I/O runs in a worker thread."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    async def peek(self, key: str, *, wait_s: float = 0.0, fresh: bool = False) -> Hit | Pending | Miss | Rejected:
        found = self._session.peek(key, fresh=fresh)
        if wait_s > 0 and found.__class__ is Pending:
            return await drive_async(self._session._peek_steps(key, wait_s, fresh), self._session, None)
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
        found = self._session.peek(key)
        if found.__class__ is Hit and ((inputs is None and found.because is None) or not fresh):
            self._session._replica.touches.avoided += 1
            return cast(T, found.value)
        steps = self._session._once_steps(check_key(key), ttl_s, lease_s, timeout_s, inputs, fresh)
        return cast(T, (await drive_async(steps, self._session, fn)).value)

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

    async def set(
        self,
        key: str,
        value: Any,
        *,
        ttl_s: float | None = None,
        token: int | None = None,
        inputs: Iterable[str | Input] | None = None,
        request_id: str | None = None,
    ) -> Stored:
        return await in_thread(lambda: self._session.set(key, value, ttl_s=ttl_s, token=token, inputs=inputs, request_id=request_id))

    async def fulfil(
        self,
        claim: Claimed | str,
        value: Any,
        *,
        token: int | None = None,
        ttl_s: float | None = None,
        inputs: Iterable[str | Input] | None = None,
        request_id: str | None = None,
    ) -> Settled:
        return await in_thread(lambda: self._session.fulfil(claim, value, token=token, ttl_s=ttl_s, inputs=inputs, request_id=request_id))

    async def reject(self, claim: Claimed | str, reason: str, *, token: int | None = None, cause: BaseException | None = None) -> Settled:
        return await in_thread(lambda: self._session.reject(claim, reason, token=token, cause=cause))

    async def release(self, claim: Claimed | str, *, token: int | None = None) -> None:
        await in_thread(lambda: self._session.release(claim, token=token))

    async def renew(self, claim: Claimed | str, lease_s: float = limits.LEASE_DEFAULT_S, *, token: int | None = None) -> Renewed:
        return await in_thread(lambda: self._session.renew(claim, lease_s, token=token))

    async def drop(self, *keys: str, prefix: str | None = None) -> Dropped:
        return await in_thread(lambda: self._session.drop(*keys, prefix=prefix))

    async def forget(self, *keys: str, **conditions: Any) -> Forgotten:
        return await in_thread(lambda: self._session.forget(*keys, **conditions))

    async def flush(self) -> Flushed:
        return await in_thread(self._session.flush)

    async def log(self, *, after: int = 0, limit: int = 50, actor: str | None = None) -> list[LogRow]:
        return await in_thread(lambda: self._session.log(after=after, limit=limit, actor=actor))

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await in_thread(self._session._replica.flush_touches)
