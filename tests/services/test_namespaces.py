"""Two stores on one server: by prefix or database in Redis, by schema or database in PostgreSQL."""

from collections.abc import Callable

import pytest
from servers import Postgres, Valkey

from pinfold import Claimed, Memory
from pinfold.journal.open import migrate_store
from pinfold.memory import iter_states
from pinfold.testing.journal_contract import run_threads

pytestmark = pytest.mark.requirement("namespaces")


def redis_stores(request: pytest.FixtureRequest) -> tuple[str, str]:
    url = request.getfixturevalue("redis_url")
    return url, f"{url}?prefix=pin"


def redis_databases(request: pytest.FixtureRequest) -> tuple[str, str]:
    url, server = request.getfixturevalue("redis_url"), request.getfixturevalue("valkey")
    assert isinstance(server, Valkey)
    return url, f"{url}/1"


def cluster_stores(request: pytest.FixtureRequest) -> tuple[str, str]:
    url = request.getfixturevalue("cluster_url")
    return f"{url}?prefix=a", f"{url}?prefix=a:1"


def postgres_schemas(request: pytest.FixtureRequest) -> tuple[str, str]:
    import psycopg

    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS apart CASCADE")
    migrate_store(f"{url}?schema=apart")
    return url, f"{url}?schema=apart"


def postgres_databases(request: pytest.FixtureRequest) -> tuple[str, str]:
    import psycopg

    url, server = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres")
    assert isinstance(server, Postgres)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS second")
        db.execute("CREATE DATABASE second")
    second = url.replace("/postgres", "/second")
    migrate_store(second)
    return url, second


@pytest.mark.parametrize("stores", [redis_stores, redis_databases, cluster_stores, postgres_schemas, postgres_databases])
def test_two_stores_on_one_server_do_not_see_each_other(request, stores: Callable[[pytest.FixtureRequest], tuple[str, str]]):
    first_url, second_url = stores(request)
    names = ["work", "store", "garbage", "index-0", "a:1"]
    with Memory(first_url) as first, Memory(second_url) as second:
        for name in names:  # as pinfold's own keys are called
            first.session(name).set("k", f"{name} of the first")
            assert second.session(name).peek("k").hit is False
        assert second.sessions() == []
        held = first.session("work").claim("job", 60)
        assert isinstance(second.session("work").claim("job", 60), Claimed)
        second.session("work").set("large", bytes(100_000))
        second.session("work")._replica.compact()
        first.session("work").set("large", bytes(100_000))
        first.session("work").drop("large")
        first.compact()
        found: list[object] = []
        waiter = first.session("work")
        run_threads([lambda: found.append(waiter.wait("job", 20).value), lambda: _settle_both(second, first, held)])
        assert found == ["of the first"]
        before = dict(iter_states(first))
        for name in ("work", "store", "index-0"):
            second.session(name).set("mine", "alone")
            second.end(name)
        second.compact()
        assert dict(iter_states(first)) == before
        assert sorted(info.session_id for info in first.sessions()) == sorted(names)
        for name in names:
            assert first.session(name).peek("k").value == f"{name} of the first"


def _settle_both(second: Memory, first: Memory, held: Claimed) -> None:
    second.session("work").set("job", "of the second")
    first.session("work").fulfil(held, "of the first")
