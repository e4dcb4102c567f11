"""Recall bound to sessions: what is indexed, that it keeps in step, and that every process answers alike."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap

import pytest

from pinfold import Memory
from pinfold.errors import Unavailable
from pinfold.journal.memory import MemoryJournal
from pinfold.recall.bind import document_of
from pinfold.recall.index import open_index


def ids_of(session, query, **rest):
    """The ids of the hits that match directly; others are there for their meaning or their neighbours."""
    return [hit.node_id for hit in session.search(query, max_depth=0, **rest).direct if hit.score > 0]


def scores_of(session, query):
    return [(hit.node_id, hit.score, hit.why) for hit in session.search(query, top_k=20, max_depth=0).direct]


def fresh_scores(session, query):
    """What an index made from the rows as they are now would answer."""
    graph = session._view().graph
    rows = sorted((row for row in (*graph.laws.values(), *graph.nodes.values())), key=lambda row: row.born)
    index = open_index([document_of(row) for row in rows])
    answer = index.search(query, 20, now_ms=session._replica.now_ms())
    return [(hit.id, round(hit.score, 6)) for hit in answer.hits]


def bound_scores(session, query):
    recall = session._recall()
    return [(hit.id, round(hit.score, 6)) for hit in recall.search(query, 20, now_ms=session._replica.now_ms()).hits]


# --- what is indexed --------------------------------------------------------------------------------------------


def test_all_values_are_found_but_those_that_say_how_a_row_is_kept(session):
    session.mutate("+ TSK [T1] ; goal=ship the zeppelin ; status=blocked ; recycle=persistent ; owner=Xenophon")
    session.upsert_node("concept", "auth", "login", {"source-file": "pottery.py", "team": "quartz"})
    assert ids_of(session, "zeppelin") == ids_of(session, "xenophon") == ["T1"]
    assert ids_of(session, "pottery") == ids_of(session, "quartz") == ["CONCEPT1"]
    assert all(hit.score == 0 for word in ("blocked", "persistent") for hit in session.search(word).direct)


def test_a_row_without_label_and_content_shows_its_id_and_line(session):
    session.mutate("+ TSK [T1] ; goal=ship the zeppelin")
    hit = session.search("zeppelin").direct[0]
    assert (hit.label, hit.content, hit.type) == ("T1", "TSK [T1] ; goal=ship the zeppelin", "TSK")


def test_laws_are_found_too(session):
    session.mutate("+ LAW01 ; rule=never deploy on Fridays")
    assert [hit.type for hit in session.search("deploy Fridays").direct] == ["LAW"]


def test_what_was_said_keeps_speaker_group_order_and_event_time(session):
    session.remember("Do you have pets?", by="Ann", group="g", at="2023-05-08")
    session.remember("Yes, two.", by="Ben", group="g", at="2023-05-08T10:00:00+02:00")
    session.remember("alone", by="user")
    rows = [document_of(row) for row in session._view().graph.nodes.values()]
    assert [(d.speaker, d.role, d.group, d.date) for d in rows] == [
        ("Ann", None, "g", "8 May, 2023"), ("Ben", None, "g", "8 May, 2023"), (None, "user", None, None),
    ]  # fmt: skip
    assert ids_of(session, "What pets does Ben have?")[0] in ("NOTE1", "NOTE2")
    assert "NOTE1" in ids_of(session, "in May 2023")


def test_by_and_group_of_other_rows_are_values_like_others(session):
    session.mutate("+ TSK [T1] ; goal=ship ; group=albatross ; by=Xanthippe")
    assert ids_of(session, "albatross") == ids_of(session, "xanthippe") == ["T1"]


# --- in step ----------------------------------------------------------------------------------------------------


def test_after_any_changes_the_index_answers_as_one_made_anew(memory):
    session, dice = memory.session("a"), random.Random(5)
    words = ["red", "green", "blue", "bicycle", "boat", "tree", "river", "stone", "cloud", "lamp"]
    ids: list[str] = []
    for turn in range(60):
        what = dice.random()
        if what < 0.5 or not ids:
            said = " ".join(dice.choices(words, k=5))
            ids.append(session.remember(said, by=dice.choice(["Ann", "Ben"]), group=dice.choice(["g", "h", None])).node_id)
        elif what < 0.65:
            session.mutate(f"~ [{dice.choice(ids)}] ; content={' '.join(dice.choices(words, k=4))}")
        elif what < 0.75:
            session.mutate(f"~ [{dice.choice(ids)}] ; group={dice.choice(['g', 'h'])}")
        elif what < 0.9:
            old = ids.pop(dice.randrange(len(ids)))
            session.mutate(f"~ [{old}] ; id=X{turn}")
            ids.append(f"X{turn}")
        else:
            session.delete(ids.pop(dice.randrange(len(ids))))
        if turn % 6 == 0:
            query = " ".join(dice.choices(words, k=2))
            assert [hit[0] for hit in bound_scores(session, query)] == [hit[0] for hit in fresh_scores(session, query)]


def test_what_an_undo_brings_back_is_found_again_in_every_process(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("a")
    for text in ("Where did you go?", "To Lisbon, by train.", "The food was good."):
        session.remember(text, by="Ann", group="g")
    seq = session.delete("NOTE2").seq
    assert ids_of(session, "Lisbon") == []
    session.undo(seq)
    assert ids_of(session, "Lisbon") == ["NOTE2"]
    assert scores_of(session, "where go") == scores_of(open_memory(sqlite_url).session("a"), "where go")


def test_writers_note_nothing_before_the_first_search(session):
    session.remember("a")
    assert session._replica.recall is None
    session.search("a")
    session.remember("b")
    assert list(session._replica.recall._changed) == ["NOTE2"]


class Clock:
    now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def test_rows_whose_time_is_over_and_dropped_rows_never_come_back(tmp_path):
    clock = Clock()
    journal = MemoryJournal(clock)
    one, two = Memory(journal=journal), Memory(journal=journal)
    a, b = one.session("s"), two.session("s")
    a.mutate("+ NOTE [N1] ; content=the zeppelin lands ; ttl=60s\n+ NOTE [N2] ; content=the zeppelin starts\n+ NOTE [N3] ; content=the zeppelin waits")
    assert sorted(ids_of(a, "zeppelin")) == sorted(ids_of(b, "zeppelin")) == ["N1", "N2", "N3"]
    b.delete("N2")
    clock.now_ms += 61_000
    for session in (a, b, Memory(journal=journal).session("s")):
        assert ids_of(session, "zeppelin") == ids_of(session, "the zeppelin lands") == ["N3"]
        assert session.resolve_context("N1").node_id != "N1"


def test_k_live_hits_come_when_k_exist(session):
    session.mutate("\n".join(f"+ NOTE [N{n:02}] ; content=zeppelin number {n}" for n in range(40)))
    session.search("zeppelin")
    session.delete(*(f"N{n:02}" for n in range(0, 40, 2)))
    assert len(ids_of(session, "zeppelin", top_k=20)) == 20
    assert len(ids_of(session, "zeppelin", top_k=7, where={"content": {"$ne": "zeppelin number 1"}})) == 7


# --- independence -----------------------------------------------------------------------------------------------


def test_scores_do_not_depend_on_other_sessions_queries_or_the_order_of_equals(memory):
    texts = ["the red bicycle of Ann", "a blue boat on the river", "the river is cold", "Ann likes the boat", "the red bicycle of Ann"]
    a, b = memory.session("a"), memory.session("b")
    for n, text in enumerate(texts):
        a.mutate(f"+ NOTE [N{n}] ; content={text}")
    before = scores_of(a, "Ann boat")
    for n in range(60):
        b.remember(f"Ann has boat number {n}")
        b.search("Ann boat")
        a.search(f"query {n} bicycle")
    assert scores_of(a, "Ann boat") == before
    c = memory.session("c")
    for n in reversed(range(len(texts))):
        c.mutate(f"+ NOTE [N{n}] ; content={texts[n]}")
    assert scores_of(c, "Ann boat") == before


# --- restart and processes --------------------------------------------------------------------------------------


def fill(session, count=400):
    dice = random.Random(3)
    words = [f"word{n}" for n in range(300)]
    session.mutate("\n".join(f"+ NOTE [N{n}] ; content={' '.join(dice.choices(words, k=8))} ; group=g{n // 20} ; by=Ann" for n in range(count)))


def test_a_restart_answers_the_same_with_a_cache_without_and_with_a_broken_one(sqlite_url, open_memory):
    first = open_memory(sqlite_url).session("a")
    fill(first)
    queries = ["word1 word2 word3", "word77", "word150 word10"]
    before = [scores_of(first, query) for query in queries]
    first._replica.recall.save()
    name = first._replica.recall.name
    cached = open_memory(sqlite_url).session("a")
    assert cached._replica.journal.get_derived("a", name)
    assert [scores_of(cached, query) for query in queries] == before
    assert cached._replica.recall._unsaved == 0, "the cache was not used"
    cached.remember("word1 something new")
    cached.delete("N5")
    late = open_memory(sqlite_url).session("a")
    assert [scores_of(late, q) for q in queries] == [scores_of(cached, q) for q in queries]
    for junk in (b"", b"junk", b"\0" * 4000):
        first._replica.journal.put_derived("a", name, junk)
        other = open_memory(sqlite_url).session("a")
        assert [scores_of(other, q) for q in queries] == [scores_of(cached, q) for q in queries]


def test_nothing_of_recall_is_journaled_by_reading(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("a")
    fill(session, 20)
    before = session.state_hash(), session._replica.state.seq
    session.search("word1")
    session.traverse("N1")
    session.resolve_context("word2")
    session.prune(dry_run=True)
    assert (session.state_hash(), session._replica.state.seq) == before


CHILD = """
    import os, sys
    from pinfold import Memory
    session = Memory(sys.argv[1]).session("a")
    session.search("zeppelin")
    session.remember("the green zeppelin", by="Ann", group="g")
    session.upsert_node("concept", "airship", "another word for zeppelin")
    print([hit.node_id for hit in session.search("zeppelin", max_depth=0).direct], flush=True)
    os.kill(os.getpid(), 9)
"""


def test_two_processes_and_a_crash_answer_alike(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("a")
    session.remember("the red zeppelin", by="Ann", group="g")
    session.search("zeppelin")
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(CHILD), sqlite_url], capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == -9 and child.stdout, child.stderr
    assert str(ids_of(session, "zeppelin")) == child.stdout.strip()
    assert scores_of(session, "zeppelin") == scores_of(open_memory(sqlite_url).session("a"), "zeppelin")


def test_a_changed_embedder_finds_by_words_and_names_the_command_that_embeds(sqlite_url, open_memory):
    calls = []

    def embed(texts):
        calls.append(len(texts))
        return [[float(len(text)), 1.0] for text in texts]

    plain = open_memory(sqlite_url).session("a")
    fill(plain, 200)
    plain.search("word1")
    other = open_memory(sqlite_url, embedder=embed).session("a")
    answer = other.search("word1 word2")
    assert answer.direct and "pinfold reembed" in answer.note
    told = []
    assert other.embed_rows(lambda done, total: told.append((done, total))) > 0
    assert told[-1][0] == told[-1][1] and not other.search("word1").note
    again = open_memory(sqlite_url, embedder=embed).session("a")
    assert not again.search("word1").note, "vectors were kept"


class Counting:
    """A slow embedder that counts its texts and can be made to fail."""

    fingerprint, dim = "counting", 2

    def __init__(self):
        self.texts, self.fails_after = 0, 10**9

    def embed(self, texts):
        if self.texts >= self.fails_after:
            raise Unavailable("nobody home", code="embedder_unavailable")
        self.texts += len(texts)
        return [[float(len(text)), 1.0] for text in texts]


def test_no_write_and_no_opening_waits_for_a_model(sqlite_url, open_memory):
    model = Counting()
    model.fails_after = 0
    session = open_memory(sqlite_url, embedder=model).session("a", promote_after=1)
    node = session.upsert_node("concept", "auth", "OAuth login").node_id
    other = session.remember("we ship on Fridays", by="Ann").node_id
    session.create_relation(node, other, "references")
    session.mutate("+ TSK [T1] ; goal=ship")
    session.set("k", "v")
    session.peek("k")
    assert session.search("OAuth").direct, "an index there is now, which writes keep up"
    session.upsert_node("concept", "auth", "OAuth login by tokens")
    session.add_interlinked([{"type": "note", "label": "n", "content": "OAuth login by tokens"}])
    session.promote("k")
    session.prune()
    open_memory(sqlite_url, embedder=model).session("a").traverse(node)
    assert model.texts == 0


@pytest.mark.parametrize("why", [Unavailable, KeyboardInterrupt])
def test_embedding_that_was_stopped_goes_on_where_it_was_in_another_process_too(sqlite_url, open_memory, why):
    first = Counting()
    session = open_memory(sqlite_url, embedder=first).session("a")
    fill(session, 600)

    def told(done, total):
        if done and why is KeyboardInterrupt:
            raise KeyboardInterrupt
        if done:
            first.fails_after = first.texts

    with pytest.raises(why):
        session.embed_rows(told)
    assert 0 < first.texts < 600
    second = Counting()
    again = open_memory(sqlite_url, embedder=second).session("a")
    assert again.embed_rows() == second.texts == 600 - first.texts
    assert not again.search("word1").note


# --- scripts ----------------------------------------------------------------------------------------------------

SCRIPTS = {
    "父进程watchdog单层重启": ["watchdog", "父进程", "父", "单层"],
    "Мы запускаем сервер ночью": ["сервер", "запускаем"],
    "Η βάση δεδομένων είναι αργή": ["βάση", "δεδομένων"],
    "قاعدة البيانات بطيئة جدا": ["البيانات"],
    "데이터베이스가 느립니다": ["데이터베이스", "느립"],
    "ฐานข้อมูลช้ามาก": ["ฐานข้อมูล", "ช้า"],
    "we ship on Friday 🚀 sharp": ["🚀"],
    "the loginHandler in src/auth/login_handler.py fails": ["login handler", "loginHandler", "src/auth/login_handler.py", "login_handler", "logins"],
    "データベースが遅い": ["データ", "遅"],
}


@pytest.fixture(scope="module")
def many_scripts():
    memory = Memory("memory://")
    session = memory.session("scripts")
    ids = {text: session.remember(text).node_id for text in SCRIPTS}
    yield session, ids
    memory.close()


@pytest.mark.parametrize(("text", "query"), [(text, query) for text, queries in SCRIPTS.items() for query in queries])
def test_every_script_is_found(many_scripts, text, query):
    session, ids = many_scripts
    assert ids_of(session, query)[0] == ids[text]
    assert session.resolve_context(query).source == "long_term"


@pytest.mark.parametrize("query", ["", "   ", "?!", "the"])
def test_a_query_without_a_word_says_so(many_scripts, query):
    session, _ = many_scripts
    answer = session.search(query)
    assert answer.direct == [] and answer.low and "no word" in answer.note
