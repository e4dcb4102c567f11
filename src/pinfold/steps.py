"""What may wait, said once: steps (Turn, Wait, Work) as a generator, driven by a thread or by asyncio."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from pinfold.engine import Replica, Waiter
from pinfold.state import promises as rules
from pinfold.state.outcomes import Claimed, Hit, Miss
from pinfold.state.silo import Slot

if TYPE_CHECKING:
    from pinfold.session import Session

T = TypeVar("T")


class Turn(msgspec.Struct):
    run: Callable[[], Any]


class Wait(msgspec.Struct):
    key: str
    timeout_s: float
    fresh: bool = False


class Work(msgspec.Struct):
    pass


Steps = Generator[Turn | Wait | Work, Any, T]


# --- drivers ------------------------------------------------------------------------------------------------------

RELEASED = Miss()
"""The outcome of waiting for a claim that was given back: look again."""


def no_work() -> Any:
    raise AssertionError("these steps have no work in them")


def _resume(steps: Generator[Any, Any, Any], run: Callable[[], Any]) -> Any:
    """Run one step and give its answer, or its exception, to the steps. Return the next step."""
    try:
        answer = run()
    except BaseException as error:
        return steps.throw(error)
    return steps.send(answer)


def drive(steps: Steps[T], session: Session, work: Callable[[], Any]) -> T:
    """Run steps in this thread."""
    try:
        step = next(steps)
        while True:
            if type(step) is Turn:
                step = _resume(steps, step.run)
            elif type(step) is Wait:
                step = _resume(steps, functools.partial(_wait_in_thread, session, step))
            else:
                step = _resume(steps, work)
    except StopIteration as stop:
        return cast(T, stop.value)


def _wait_in_thread(session: Session, step: Wait) -> Any:
    replica, waiter = session._replica, Waiter()
    replica.add_waiter(step.key, waiter)
    try:
        if _still_pending(replica, step.key, step.fresh):
            if replica.background:
                waiter.wait(step.timeout_s)
            else:
                waiter.wait_following(replica, step.timeout_s)
    finally:
        replica.remove_waiter(step.key, waiter)
    return _settle(replica, waiter)


def _still_pending(replica: Replica, key: str, fresh: bool) -> bool:
    """Look once more after registering: what settled in between woke nobody, and the caller looks again.

    fresh: a value that is there is the stale one that is being made anew; whoever stores another settles the promise.
    """
    replica.catch_up()
    promise = replica.state.promises.by_key.get(key)
    return promise is not None and promise.status == rules.PENDING and (fresh or replica.state.silo.live(key, replica.now_ms()) is None)


def _settle(replica: Replica, waiter: Waiter) -> Any:
    """Return a waiter's outcome as a caller sees it; None where it only timed out."""
    outcome = waiter.outcome
    if type(outcome) is Slot:
        return Hit(replica.value_of(outcome.value), outcome.index if outcome.index >= 0 else None, True)
    return RELEASED if type(outcome) is Miss else outcome


async def drive_async(steps: Steps[T], session: Session, work: Callable[[], Awaitable[Any]] | None) -> T:
    """Run steps in this task: turns in a worker thread, waits as futures."""
    try:
        step = next(steps)
        while True:
            try:
                if type(step) is Turn:
                    answer = await _turn_in_thread(session, step.run)
                elif type(step) is Wait:
                    answer = await _wait_in_task(session, step)
                else:
                    assert work is not None
                    answer = await work()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return cast(T, stop.value)


async def _wait_in_task(session: Session, step: Wait) -> Any:
    import asyncio

    loop = asyncio.get_running_loop()
    settled = loop.create_future()

    def settle() -> None:
        if not settled.done():
            settled.set_result(None)

    def notify() -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    replica, waiter = session._replica, Waiter(notify)
    replica.add_waiter(step.key, waiter)
    try:
        if await in_thread(functools.partial(_still_pending, replica, step.key, step.fresh)):
            await asyncio.wait([settled], timeout=step.timeout_s)
    finally:
        replica.remove_waiter(step.key, waiter)
    return _settle(replica, waiter)


async def in_thread(run: Callable[[], T]) -> T:
    import asyncio

    return await asyncio.to_thread(run)


async def _turn_in_thread(session: Session, run: Callable[[], Any]) -> Any:
    """Run a turn in a worker thread. A claim won after the caller was cancelled is given back: nobody would work on it."""
    import asyncio

    handed = threading.Lock()  # taken once: by the turn that is done, or by the caller that is gone
    answers: list[Any] = []

    def turn() -> Any:
        answers.append(run())
        if not handed.acquire(blocking=False):
            give_back(answers[0])
        return answers[0]

    def give_back(answer: Any) -> None:
        if type(answer) is Claimed:
            session._quietly(lambda: session.release(answer))

    future = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, turn)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not handed.acquire(blocking=False):
            await in_thread(lambda: give_back(answers[0]))
        raise
