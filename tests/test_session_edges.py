"""A session at its edges: impossible numbers and words, retries of another request, and the end of a session or a store under its users."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pinfold import Claimed, Memory, Miss, PinfoldError, Refused, Unavailable, limits
from pinfold.fold import load_state
from pinfold.journal.base import Snapshot
from pinfold.journal.memory import MemoryJournal
from sessions import BOUND_S, refusal, waiting


@pytest.mark.requirement("wake-up")
def test_the_end_of_a_session_wakes_those_who_wait_in_it_here_and_elsewhere(sqlite_url, open_memory):
    memory, other = open_memory(sqlite_url), open_memory(sqlite_url)
    session, there = memory.session("work"), other.session("work")
    session.claim("job", 60)
    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(s.wait, "job", 60) for s in (session, there)]
        ask = pool.submit(session.once, "job", lambda: "never made")
        waiting(session, "job", 2)
        waiting(there, "job")
        memory.end("work")
        assert [done.result(BOUND_S) for done in waits] == [Miss(), Miss()]
        with pytest.raises(Refused) as ended:
            ask.result(BOUND_S)
        assert ended.value.code == "session_ended"


@pytest.mark.requirement("wake-up")
def test_closing_a_store_tells_those_who_wait_in_it(sqlite_url, open_memory):
    memory = open_memory(sqlite_url)
    session = memory.session("work")
    session.claim("job", 60)
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(session.wait, "job", 60), pool.submit(session.once, "job", None), pool.submit(session.claim, "job", wait_s=60)]
        waiting(session, "job", 3)
        memory.close()
        for done in waits:
            with pytest.raises(Unavailable) as closed:
                done.result(BOUND_S)
            assert closed.value.code == "closed"


@pytest.mark.requirement("incarnations")
def test_a_life_whose_journal_was_purged_is_not_begun_anew_beside_the_next_one(timed, clock):
    here, there = timed(), timed()
    session = here.session("work")
    session.set("k", "first life")
    there.end("work")
    there.session("work").set("k", "second life")
    clock.tick(limits.ENDED_SESSION_KEPT_S * 1000 + 1)
    assert there.purge() == ["work"]
    assert here.session("work").peek("k").value == "second life"
    assert refusal(lambda: session.set("k", "written where nobody reads")).code == "session_ended"
    assert session.peek("k") == Miss() and session.keys() == []
    unborn, again = here.session("new"), there.session("new")
    again.set("k", 1)
    assert unborn.peek("k").value == 1 and here.session("new") is unborn


def test_a_life_that_is_not_the_next_one_any_more_is_never_begun(timed, clock):
    here, there = timed(), timed()
    here.session("work").set("k", "first life")
    here.end("work")
    second = here.session("work")  # opened, nothing written
    clock.tick(limits.ENDED_SESSION_KEPT_S * 1000 + 1)
    assert there.purge() == ["work"]
    there.session("work").set("k", "begun anew under the first number")
    assert refusal(lambda: second.set("k", "written where nobody reads")).code == "session_ended"
    assert here.session("work").peek("k").value == "begun anew under the first number"


def test_a_life_behind_one_that_was_restored_is_never_begun(timed):
    here, there = timed(), timed()
    here.session("work").set("k", "first life")
    here.end("work")
    second = here.session("work")
    there.restore("work")
    assert refusal(lambda: second.set("k", "written where nobody reads")).code == "session_ended"
    here.session("work").set("more", 1)
    assert (there.session("work").peek("k").value, there.session("work").peek("more").value) == ("first life", 1)


def test_a_handle_of_a_purged_life_does_not_write_to_one_of_the_same_number(timed, clock):
    here, there = timed(), timed()
    session = here.session("work")
    stale = session.claim("job", 60)
    there.end("work")
    clock.tick(limits.ENDED_SESSION_KEPT_S * 1000 + 1)
    there.purge()
    fresh = there.session("work").claim("job", 60)
    assert stale.token == fresh.token
    assert refusal(lambda: session.fulfil(stale, "from another life")).code == "session_ended"
    there.session("work").fulfil(fresh, "done")
    assert here.session("work").peek("job").value == "done"


@pytest.mark.requirement("session-ttl", "incarnations")
def test_a_session_with_a_ttl_is_alive_after_it_was_loaded_or_forked_from_long_ago(timed, clock, tmp_path):
    memory = timed()
    session = memory.session("work", ttl_s=60)
    session.set("k", "kept")
    memory.save("work", str(tmp_path / "saved"))
    for n in range(10):
        clock.tick(50_000)
        session.set("n", n)
    assert memory.fork("work", "forked", at=1).set("more", 1).index == 0
    assert memory.fork("work", "later", at=2).peek("k").value == "kept"
    assert memory.load(str(tmp_path / "saved"), "loaded").peek("k").value == "kept"
    assert [row.session_id for row in timed().sessions()] == ["forked", "later", "loaded", "work"]


def test_ending_a_session_loads_none_of_those_in_use(timed, clock, monkeypatch):
    from pinfold import memory as module

    memory, loaded = timed(), []
    for n in range(5):
        memory.session(f"s{n}").set("k", n)
    monkeypatch.setattr(module, "load_state", lambda journal, name: (loaded.append(name), load_state(journal, name))[1])
    assert memory.end("s0") and loaded == []
    memory.restore("s0")
    assert set(loaded) == {"s0"}


@pytest.mark.requirement("request-id", "no-acknowledged-write-lost")
def test_a_request_id_used_for_another_key_or_value_is_refused_and_not_answered_as_done(session):
    large = "x" * (limits.INLINE_VALUE_BYTES + 1)
    first = {
        "set": lambda rid, key, value: session.set(key, value, request_id=rid),
        "large": lambda rid, key, value: session.set(key, large + value, request_id=rid),
        "fulfil": lambda rid, key, value: session.fulfil(session.claim(key), value, request_id=rid),
        "reject": lambda rid, key, value: session.reject(session.claim(key), value, request_id=rid),
        "claim": lambda rid, key, value: session.claim(key, request_id=rid),
    }
    for name, send in first.items():
        answer = send(f"r-{name}", f"{name}1", "one")
        assert refusal(lambda: send(f"r-{name}", f"{name}2", "one")).code == "request_id_reused", name  # noqa: B023
        if name in ("set", "large", "claim"):
            assert send(f"r-{name}", f"{name}1", "one") == answer
        if name in ("set", "large"):
            assert refusal(lambda: send(f"r-{name}", f"{name}1", "two")).code == "request_id_reused"  # noqa: B023
    session.forget("set1", erase=True)
    assert session.set("set1", "one", request_id="r-set").index == 0  # of what was erased, the key is all that can be told


@pytest.mark.requirement("errors-shared")
@pytest.mark.parametrize("text", ["bad \udcff name", "\ud800", "zażółć 🐟", ""])
def test_a_failure_whose_words_are_no_unicode_is_shared_all_the_same(sqlite_url, open_memory, text):
    here, there = open_memory(sqlite_url).session("work"), open_memory(sqlite_url).session("work")
    with ThreadPoolExecutor(1) as pool:

        def fail():
            asked.append(pool.submit(there.wait, "job", BOUND_S))
            waiting(there, "job")
            raise ValueError(text)

        asked = []
        with pytest.raises(ValueError) as failed:
            here.once("job", fail)
        assert failed.value.args == (text,)
        reason = asked[0].result(BOUND_S).reason
    assert reason == f"ValueError: {text.encode('utf-8', 'backslashreplace').decode()}" if text else reason == "ValueError"
    assert isinstance(here.claim("job"), Claimed)


@pytest.mark.parametrize("bad", [float("nan"), "5", None])
def test_an_impossible_time_to_wait_is_refused_and_not_waited_for(session, bad):
    session.register("job")
    assert refusal(lambda: session.wait("job", bad)).code == "bad_timeout"
    if bad is not None:
        assert refusal(lambda: session.peek("job", wait_s=bad)).code == "bad_timeout"
        assert refusal(lambda: session.claim("job", wait_s=bad)).code == "bad_timeout"
        assert refusal(lambda: session.once("job", None, timeout_s=bad)).code == "bad_timeout"


def test_one_may_wait_without_end(session):
    session.register("job")
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(session.wait, "job", float("inf")),
            pool.submit(session.peek, "job", wait_s=1e12),
            pool.submit(session.once, "job", None, timeout_s=float("inf")),
        ]
        waiting(session, "job", 3)
        session.resolve("job", "done")
        assert [getattr(done.result(BOUND_S), "value", "done") for done in asked] == ["done"] * 3


@pytest.mark.parametrize("age_s", [-1, float("nan"), float("inf"), "old"])
def test_an_impossible_age_forgets_nothing(session, age_s):
    session.set("k", 1)
    assert refusal(lambda: session.forget(older_than_s=age_s)).code == "bad_age"
    assert session.peek("k").hit


def test_the_log_tells_times_as_times_and_bytes_as_bytes(timed, clock):
    session = timed().session("work")
    session.set("k", "żó")
    session.set("j", ["ż"])
    began, put = session.log()[0].changes
    assert began.startswith("session created=20") and began.endswith("Z") and str(clock()) not in began
    assert put == "set k [0] 4 bytes" and session.log()[1].changes == ["set j [1] 6 bytes"]
    for bad in ({"limit": -1}, {"after": -1}):
        assert refusal(lambda: session.log(**bad)).code == "bad_arguments"  # noqa: B023
    assert session.log(limit=0) == []


@pytest.mark.parametrize("number", ["-5", str(10**30), "", "x", "1e5"])
def test_a_saved_file_with_an_impossible_number_is_refused_and_replaces_nothing(memory, tmp_path, number):
    session = memory.session("work", silo_size=5)
    session.set("k", 1, ttl_s=3600)
    session.mutate("+ CONCEPT [C1] ; label=a")
    path = tmp_path / "saved"
    memory.save("work", str(path))
    whole = path.read_text(encoding="utf-8")
    names = set(re.findall(r"[ ;\"](\w+)(?==\d|\": \d)", whole))
    assert {"seq", "graph_seq", "at_ms", "born", "next_index", "index", "stored", "expires", "silo_size"} <= names
    for name in sorted(names - {"created_at_ms", "json"}):
        path.write_text(re.sub(rf"(?<=[ ;\"]){name}(=|\": )\d+", rf"{name}\g<1>{number}", whole), encoding="utf-8")
        if name == "expires" and not number:
            continue  # no time at all
        assert refusal(lambda: memory.load(str(path), "work", replace=True)).code in ("bad_snapshot", "parse_error"), name
        assert memory.session("work").peek("k").value == 1


def test_a_merge_holds_up_no_writer_of_the_fork(open_memory, monkeypatch):
    from pinfold import history

    memory = open_memory("memory://")
    memory.session("work").mutate("+ CONCEPT [C1] ; label=a")
    fork = memory.fork("work", "trial")
    fork.mutate("~ [C1] ; label=b")
    written = threading.Event()
    merge = history.merge_document

    def merge_beside_a_writer(*graphs):
        writer = threading.Thread(target=lambda: (fork.mutate("+ CONCEPT [C2] ; label=late"), written.set()), daemon=True)
        writer.start()
        writer.join(BOUND_S / 3)
        return merge(*graphs)

    monkeypatch.setattr(history, "merge_document", merge_beside_a_writer)
    assert memory.merge("trial").conflicts == []
    assert written.is_set()
    assert [item.line for item in memory.session("work").get("C1").items] == ["CONCEPT [C1] ; label=b"]


def test_a_look_at_the_past_that_was_interrupted_is_not_gone_on_from(open_memory, monkeypatch):
    from pinfold import history

    session = open_memory("memory://").session("work")
    for n in range(6):
        session.mutate(f"+ CONCEPT [C{n}] ; label=a")
    assert len(session.at(2).find().items) == 2
    apply, left = history.apply, [2]

    def interrupted(state, entry, entry_hash):
        left[0] -= 1
        if left[0] == 0:
            state.graph.nodes.clear()  # somewhere in the middle
            raise KeyboardInterrupt
        apply(state, entry, entry_hash)

    monkeypatch.setattr(history, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.at(5)
    assert len(session.at(4).find().items) == 4


def test_a_session_dropped_while_its_torn_snapshot_is_read_is_gone_and_not_damaged(clock):
    class Dropping(MemoryJournal):
        def load_snapshots(self, session, limit=None):
            found = super().load_snapshots(session, limit)
            if found:
                self.drop(session)
            return found

    journal = Dropping(clock)
    with Memory(journal=journal, background=False) as memory:
        memory.session("work").set("k", 1)
        last = journal.read("work", 0)[-1]
        journal.save_snapshot("work", Snapshot(last.seq, last.hash, b"torn"))
        assert not load_state(journal, "work").exists


# --- what is no path ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"], ids=["a NUL", "half of a pair"])
@pytest.mark.parametrize("where", ["save", "load", "import", "ingest", "root of an ingest", "file", "tree", "store"])
def test_a_text_that_no_file_system_takes_for_a_path_is_refused_wherever_one_is_asked_for(where, path, open_memory):
    from pinfold.importers import import_store
    from pinfold.ingest.job import Ingest

    memory = open_memory()
    session = memory.session("work")
    session.set("k", 1)
    before = session.log()
    asked = {
        "save": lambda: memory.save("work", path),
        "load": lambda: memory.load(path),
        "import": lambda: import_store(session, "memory", path),
        "ingest": lambda: Ingest(session, "code", path),
        "root of an ingest": lambda: Ingest(session, "code", ".", root=path),
        "file": lambda: session.set("k", 2, inputs=[f"file:{path}"]),
        "tree": lambda: session.set("k", 2, inputs=[f"tree:{path}"]),
        "store": lambda: Memory(f"sqlite:///{path}"),
    }
    with pytest.raises(PinfoldError) as refused:
        asked[where]()
    assert refused.value.code == ("bad_url" if where == "store" else "bad_path") and refused.value.hint
    assert session.log() == before
