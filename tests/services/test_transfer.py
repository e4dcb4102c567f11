"""pinfold copy, stat and migrate between stores of every kind."""

import json

import pytest

from pinfold import Memory, Refused
from pinfold.doors.cli import main
from pinfold.journal.open import migrate_store, open_journal
from pinfold.memory import iter_states
from pinfold.transfer import copy_store


def fill(url: str) -> None:
    with Memory(url, background=False) as memory:
        session = memory.session("work")
        for n in range(30):
            session.set(f"k{n}", f"value {n}")
        session.set("large", bytes(100_000))
        session.set("large", b"1" * 100_000)
        session.mutate("+ CONCEPT [NEW:a] ; label=anchors")
        memory.session("ended").set("a", "1")
        memory.end("ended")
        memory.session("ended").set("a", "2")


def states(url: str) -> dict[str, str]:
    with Memory(url, background=False) as memory:
        return dict(iter_states(memory))


def test_a_store_goes_from_a_file_to_a_cluster_to_postgres_and_back(sqlite_url, cluster_url, postgres_url, tmp_path, capsys):
    fill(sqlite_url)
    back = f"sqlite:///{tmp_path}/back.db"
    for source, target in ((sqlite_url, cluster_url), (cluster_url, postgres_url), (postgres_url, back)):
        assert main(["copy", source, target]) == 0
    assert "work  seq=33 entries=33 state=" in capsys.readouterr().out
    assert states(back) == states(sqlite_url) == states(cluster_url)
    assert set(states(back)) == {"work", "ended", "ended@2"}
    with Memory(back) as memory:
        assert memory.session("work").peek("large").value == b"1" * 100_000
        assert memory.session("ended").peek("a").value == "2"
        assert memory.session("work").log(limit=100)[0].seq == 1


def test_a_copy_that_was_broken_off_goes_on_and_one_that_differs_is_refused(sqlite_url, redis_url, capsys):
    fill(sqlite_url)
    source, target = open_journal(sqlite_url), open_journal(redis_url)
    records = source.read("work", 0, 12)
    assert target.append("work", 0, b"", records, {}) is None
    counts = {copied.session: copied.entries for copied in copy_store(source, target)}
    assert counts["work"] == 33 - 12
    with Memory(sqlite_url) as memory:
        memory.session("work").set("more", "1")
    assert {copied.session: copied.entries for copied in copy_store(source, target, only="work")} == {"work": 1}
    with Memory(redis_url) as memory:
        memory.session("work").set("mine", "1")
    with pytest.raises(Refused) as refused:
        list(copy_store(source, target))
    assert refused.value.code == "copy_differs"
    source.close()
    target.close()


def test_a_compacted_copy_has_the_state_and_no_history(sqlite_url, redis_url):
    fill(sqlite_url)
    assert main(["copy", sqlite_url, redis_url, "--compacted", "--session", "work"]) == 0
    assert states(redis_url) == {"work": states(sqlite_url)["work"]}
    with Memory(redis_url) as memory:
        session = memory.session("work")
        assert session.peek("large").value == b"1" * 100_000
        session.set("goes", "on")
        assert len(session.log(limit=100)) == 2


def test_a_trimmed_journal_is_copied_from_where_its_history_begins(sqlite_url, redis_url):
    fill(sqlite_url)
    journal = open_journal(sqlite_url)
    with Memory(sqlite_url) as memory:
        session = memory.session("work")
        session._replica.compact()
        session.set("later", "1")
        session._replica.compact()
        session.set("latest", "1")
        journal.trim("work", 20, 0)
    journal.close()
    assert main(["copy", sqlite_url, redis_url]) == 0
    assert states(redis_url) == states(sqlite_url)


def test_stat_and_migrate_take_a_url(postgres_url, redis_url, sqlite_url, capsys):
    fill(redis_url)
    assert main(["stat", redis_url]) == 0
    told = capsys.readouterr().out
    assert "work  seq=33 entries=33" in told
    assert "replicas=0" in told
    assert main(["stat", postgres_url, "--json"]) == 0
    assert any("synchronous" in note for note in json.loads(capsys.readouterr().out)["notes"])
    assert main(["migrate", f"{postgres_url}?schema=second"]) == 0
    assert "format 0 -> 1" in capsys.readouterr().out
    assert migrate_store(f"{postgres_url}?schema=second") == []
    assert main(["migrate", sqlite_url]) == 0
