"""What tests of sessions ask again and again."""

import threading

import pytest

from pinfold import Refused

BOUND_S = 30.0


def refusal(run) -> Refused:
    with pytest.raises(Refused) as refused:
        run()
    return refused.value


def waiting(session, key: str, count: int = 1) -> None:
    """Return once count threads wait for key. Bounded."""
    done = threading.Event()
    for _ in range(3_000):
        if len(session._replica._waiters.get(key, ())) >= count:
            return
        done.wait(0.01)
    raise AssertionError(f"nobody waits for {key}")
