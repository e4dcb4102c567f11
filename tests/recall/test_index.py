"""The index as a whole: documents in, hits out, and no trace of how it came to be."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.errors import Unavailable
from pinfold.recall import index as index_module
from pinfold.recall.document import Answer, Document
from pinfold.recall.index import DAY_MS, RecallIndex, open_index
from pinfold.recall.parts import Filter

CHAT = [
    Document("a1", "Where did you leave the bicycle?", group="g1", speaker="Ann"),
    Document("a2", "Behind the old mill, near the gate.", group="g1", speaker="Bo"),
    Document("a3", "Fine, I will fetch it tomorrow.", group="g1", speaker="Ann"),
    Document("b1", "The invoice for the printer is overdue.", group="g2", speaker="Bo"),
    Document("c1", "A harbour town known for its lighthouse.", name="Port Ellery"),
    Document("c2", "The lighthouse keeper moved to Port Ellery in spring.", name="Orla Finch"),
]


def ids(answer: Answer) -> list[str]:
    return [hit.id for hit in answer.hits]


def shape(answer: Answer) -> list[tuple[str, float, float]]:
    return [(hit.id, hit.score, hit.confidence) for hit in answer.hits]


def test_a_memory_is_found_by_its_words() -> None:
    assert ids(open_index(CHAT).search("printer invoice"))[0] == "b1"


def test_the_answer_to_a_question_is_found_through_the_question() -> None:
    hits = open_index(CHAT, "none").search("where is the bicycle", explain=True).hits
    answer = next(hit for hit in hits if hit.id == "a2")
    assert "neighbour" in answer.why and "words" not in answer.why
    assert answer.confidence < hits[0].confidence


def test_a_query_of_stop_words_returns_nothing_and_says_so() -> None:
    answer = open_index(CHAT).search("what is it?")
    assert answer.empty and not answer.hits and answer.note


def test_an_empty_store_is_a_miss() -> None:
    answer = RecallIndex().search("anything")
    assert answer.miss and not answer.hits and not answer.empty


def test_an_exact_name_or_id_is_first_and_sure_whatever_else_matches() -> None:
    docs = [*CHAT, Document("d1", "orla finch orla finch orla finch"), Document("it", "pronoun")]
    index = open_index(docs)
    hit = index.search("  ORLA finch ").hits[0]
    assert (hit.id, hit.confidence, hit.why[0]) == ("c2", 1.0, "exact")
    assert ids(index.search("it")) == ["it"]
    assert ids(index.search("b1"))[0] == "b1"


def test_a_mentioned_name_leads_to_its_memory() -> None:
    hits = open_index(CHAT, "none").search("keeper moved", explain=True).hits
    assert ids(open_index(CHAT, "none").search("keeper moved"))[0] == "c2"
    assert "mention" in next(hit for hit in hits if hit.id == "c1").why


class Edges:
    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = pairs

    def degree(self, node: str) -> int:
        return sum(node in pair for pair in self.pairs)

    def neighbours(self, node: str) -> Iterable[tuple[str, float]]:
        return [(b if node == a else a, 1.0) for a, b in self.pairs if node in (a, b)]


def test_a_stored_edge_leads_on_but_never_past_the_best_direct_hit() -> None:
    index = open_index(CHAT, "none")
    assert "b1" not in ids(index.search("harbour"))
    answer = index.search("harbour", edges=Edges([("c1", "b1"), ("c1", "nowhere")]), explain=True)
    assert ids(answer)[0] == "c1"
    assert "edge" in next(hit for hit in answer.hits if hit.id == "b1").why


def test_the_speaker_a_query_names_is_preferred() -> None:
    docs = [Document(f"{who}{n}", f"dinner plan number {n}", group="g", speaker=who) for n in range(3) for who in ("Ann", "Bo")]
    assert [id[:2] for id in ids(open_index(docs, "none").search("dinner plan of Bo", 3))] == ["Bo"] * 3


def test_the_asker_is_preferred_when_the_query_says_i() -> None:
    docs = [Document(f"{role}{n}", f"budget tracker step {n}", group="g", role=role) for n in range(3) for role in ("assistant", "user")]
    assert [id[:4] for id in ids(open_index(docs, "none").search("my budget tracker", 3))] == ["user"] * 3


def test_the_parts_of_a_hit_add_up_to_its_score() -> None:
    index = open_index(CHAT)
    for query in ("bicycle near the gate", "lighthouse keeper", "Bo printer"):
        for hit in index.search(query, explain=True).hits:
            if "exact" not in hit.why:
                assert hit.why == tuple(part.name for part in hit.parts if part.amount > 0 and part.name != "decay")
                total = sum(part.amount for part in hit.parts)
                best = index.search(query, explain=True).hits[0]
                scale = sum(part.amount for part in best.parts)
                assert hit.score == pytest.approx(total / max(scale, 1.0), abs=0.05)


def test_equal_words_collapse_and_contradictions_do_not() -> None:
    docs = [
        Document("m2", "The gate code is 4711.", kind="note"),
        Document("m1", "the gate code  is 4711.", kind="note"),
        Document("m3", "The gate code is 4712.", kind="note"),
    ]
    hits = {hit.id: hit for hit in open_index(docs).search("gate code").hits}
    assert set(hits) == {"m1", "m3"}
    assert hits["m1"].count == 2 and hits["m1"].duplicates == ("m2",) and hits["m3"].count == 1
    assert len(open_index(docs).search("gate code", collapse=False).hits) == 3


def test_filters_choose_and_do_not_change_scores() -> None:
    docs = [Document(f"n{n}", f"cedar plank {n}", kind="ab"[n % 2], group=None if n < 5 else "g", at_ms=n * DAY_MS, actor=f"w{n % 3}") for n in range(10)]
    index = open_index(docs, "none")
    every = {hit.id: hit.score for hit in index.search("cedar plank", 10).hits}
    for chosen, filter in (
        ({"n1", "n3", "n5", "n7", "n9"}, Filter(kinds=frozenset("b"))),
        ({"n2", "n3"}, Filter(since_ms=2 * DAY_MS, until_ms=4 * DAY_MS)),
        ({f"n{n}" for n in range(5)}, Filter(groups=frozenset([None]))),
        ({"n1", "n4", "n7"}, Filter(actors=frozenset(["w1"]))),
        ({"n8"}, Filter(where=lambda d: d.id == "n8")),
        ({"n0", "n9"}, Filter(ids=frozenset(["n0", "n9", "gone"]))),
        (set(), Filter(kinds=frozenset("z"))),
    ):
        found = index.search("cedar plank", 10, filter=filter).hits
        assert {hit.id: hit.score for hit in found} == {id: every[id] for id in chosen}


def test_decay_re_ranks_above_a_floor_and_spares_the_pinned() -> None:
    docs = [
        Document("old", "cedar plank", at_ms=0, kind="a"),
        Document("new", "cedar plank", at_ms=400 * DAY_MS, kind="b"),
        Document("pin", "cedar plank", at_ms=0, kind="c", pinned=True),
        Document("odd", "cedar plank", at_ms=900 * DAY_MS, kind="d"),
    ]
    index = open_index(docs, "none")
    scores = {hit.id: hit.score for hit in index.search("cedar plank", now_ms=400 * DAY_MS).hits}
    assert scores["new"] == scores["pin"] == scores["odd"] == 1.0
    assert scores["old"] == pytest.approx(0.8)
    assert {hit.score for hit in index.search("cedar plank").hits} == {1.0}


def test_an_old_conversation_keeps_its_order_under_decay() -> None:
    docs = [Document(d.id, d.text, group=d.group, speaker=d.speaker, name=d.name, at_ms=0) for d in CHAT]
    index = open_index(docs)
    assert ids(index.search("bicycle mill", now_ms=242 * DAY_MS)) == ids(index.search("bicycle mill"))


TEXTS = st.lists(st.sampled_from(["amber", "birch", "cedar", "delta", "ember?", "Ann", "I"]), min_size=1, max_size=6).map(" ".join)
DOCUMENTS = st.builds(
    Document,
    id=st.sampled_from([f"d{n}" for n in range(9)]),
    text=TEXTS,
    group=st.sampled_from([None, "g", "h"]),
    speaker=st.sampled_from([None, "Ann", "Bo"]),
    name=st.sampled_from([None, "Cedar", "Birch Delta"]),
)
QUERIES = ["amber cedar", "birch delta", "Ann ember", "my amber"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "ask"]), DOCUMENTS), max_size=25))
def test_any_history_answers_as_a_fresh_index_of_what_is_left(steps: list[tuple[str, Document]]) -> None:
    index, live = RecallIndex(), dict[str, Document]()
    order: dict[str | None, list[str]] = {}  # per group, in the order of joining it
    for what, document in steps:
        if what == "ask":
            index.search("amber birch")
        elif what == "drop":
            assert index.delete(document.id) == (live.pop(document.id, None) is not None)
        else:
            old = live.get(document.id)
            if old is not None and old.group != document.group:
                order[old.group].remove(document.id)
            if old is None or old.group != document.group:
                order.setdefault(document.group, []).append(document.id)
            assert index.put(document) == (old is None)
            live[document.id] = document
        for group, members in order.items():
            order[group] = [id for id in members if id in live and live[id].group == group]
    fresh = open_index([live[id] for members in order.values() for id in members])
    assert len(index) == len(fresh) == len(live)
    for query in QUERIES:
        assert shape(index.search(query)) == shape(fresh.search(query))


@settings(max_examples=60, deadline=None)
@given(st.lists(DOCUMENTS, max_size=12), st.lists(DOCUMENTS, max_size=6), st.randoms(use_true_random=False))
def test_a_cache_of_any_earlier_state_gives_the_index_of_now(before: list[Document], after: list[Document], rng: random.Random) -> None:
    cache = open_index(before)
    cache.search("amber")
    data = cache.to_bytes()
    now = {d.id: d for d in before if rng.random() < 0.7} | {d.id: d for d in after}
    restored, fresh = open_index(now.values(), cache=data), open_index(now.values())
    for query in QUERIES:
        assert shape(restored.search(query)) == shape(fresh.search(query))
    for id in list(now):
        assert restored.delete(id)
    assert len(restored) == 0 and restored.search("amber").miss


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_cache_is_ignored(damage: bytes | None) -> None:
    good = bytearray(open_index(CHAT).to_bytes())
    good[len(good) // 2] ^= 1
    index = open_index(CHAT, cache=bytes(good) if damage is None else damage)
    assert ids(index.search("printer invoice"))[0] == "b1"


def test_a_cache_of_another_embedder_keeps_the_words_and_embeds_again() -> None:
    data = open_index(CHAT, "hash")
    data.search("x")
    index = open_index(CHAT, "static", cache=data.to_bytes())
    assert len(index.pending()) == len(CHAT)
    assert shape(index.search("printer invoice")) == shape(open_index(CHAT).search("printer invoice"))


def test_scores_do_not_depend_on_queries_made() -> None:
    index = open_index(CHAT)
    first = shape(index.search("bicycle"))
    for query in QUERIES:
        index.search(query)
    assert shape(index.search("bicycle")) == first


def test_equals_come_by_id_in_whatever_order_they_were_put() -> None:
    docs = [Document(f"n{n}", "cedar plank", kind=str(n)) for n in range(30)]
    for seed in range(3):
        random.Random(seed).shuffle(docs)
        assert ids(open_index(docs).search("cedar", 7)) == sorted(d.id for d in docs)[:7]


def test_deleted_documents_never_come_back_and_k_live_ones_do() -> None:
    index = open_index([Document(f"n{n:02d}", f"cedar plank {n}") for n in range(40)])
    index.search("cedar")
    for n in range(0, 40, 2):
        index.delete(f"n{n:02d}")
    assert sorted(ids(index.search("cedar plank", 20))) == [f"n{n:02d}" for n in range(1, 40, 2)]


def test_vectors_of_a_slow_embedder_follow_and_words_answer_meanwhile() -> None:
    calls: list[int] = []

    def embed(texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        return np.array([[len(text), 1.0, text.count("e")] for text in texts])

    index = open_index(CHAT, embed)
    answer = index.search("printer invoice")
    assert ids(answer)[0] == "b1" and answer.unembedded == len(CHAT) and not calls
    assert index.embed_pending(limit=4) == 2
    assert index.embed_pending() == 0
    assert index.search("printer invoice").unembedded == 0
    key = index.pending()
    index.put(Document("b1", "The invoice was paid."))
    assert key == [] and [id for id, _, _ in index.pending()] == ["b1"]
    index.set_vectors(["b1"], np.ones((1, 3)))
    assert index.pending() == []


def test_an_embedder_that_does_not_answer_leaves_the_words() -> None:
    down = False

    def embed(texts: list[str]) -> np.ndarray:
        if down:
            raise Unavailable("nobody home", code="embedder_unavailable")
        return np.ones((len(texts), 2))

    index = open_index(CHAT, embed)
    index.embed_pending()
    down = True
    answer = index.search("printer invoice")
    assert ids(answer)[0] == "b1" and "nobody home" in answer.note


def test_ideograph_queries_get_hits_and_no_verdict() -> None:
    docs = [Document("z1", "父进程watchdog单层"), Document("z2", "今天天气很好"), Document("e1", "The watchdog barked.")]
    index = open_index(docs)
    assert ids(index.search("watchdog"))[0] in ("z1", "e1") and {"z1", "e1"} <= set(ids(index.search("watchdog")))
    assert ids(index.search("层")) == ["z1"] and ids(index.search("天气"))[0] == "z2"
    answer = index.search("银行密码")
    assert answer.low and not answer.miss and answer.confidence == 0.5


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Встреча с книгой в библиотеке", "книги"),
        ("Το βιβλίο είναι στη βιβλιοθήκη", "βιβλία"),
        ("هذا كتاب جميل", "الكتاب"),
        ("서울에서 만나요", "서울"),
        ("สวัสดีตอนเช้า", "เช้า"),
        ("party time 🎉", "🎉"),
        ("def parseHttpHeader(raw):", "http header"),
        ("see src/pinfold/recall/rank.py", "recall/rank.py"),
    ],
)
def test_every_script_is_found(text: str, query: str) -> None:
    assert ids(open_index([Document("x", "nothing of note"), Document("y", text)]).search(query))[0] == "y"


def test_a_pool_of_a_large_store_ranks_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    words = [f"w{n}" for n in range(300)]
    docs = [
        Document(f"n{n:04d}", " ".join(rng.choices(words, k=8)), group=f"g{n // 20}" if n % 3 else None, name=rng.choice(words) if n % 25 == 0 else None)
        for n in range(1500)
    ]
    queries = [" ".join(rng.choices(words, k=3)) for _ in range(20)]
    index = open_index(docs, "none")
    whole = [index.search(query) for query in queries]
    monkeypatch.setattr(index_module, "POOL_ALL_UP_TO", 100)
    monkeypatch.setattr(index_module, "POOL", 200)
    for query, expected in zip(queries, whole, strict=True):
        assert ids(index.search(query))[:5] == ids(expected)[:5]
    assert len(index.search("w1", 5, filter=Filter(ids=frozenset([docs[1].id, docs[2].id]))).hits) <= 2


def test_k_hits_come_when_k_pass_however_few_of_a_large_store_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "POOL_ALL_UP_TO", 50)
    monkeypatch.setattr(index_module, "POOL", 20)
    docs = [Document(f"n{n:03d}", f"cedar plank {n}", kind="rare" if n % 60 == 7 else "common", actor=f"w{n % 97}") for n in range(600)]
    index = open_index(docs, "none")
    every = {hit.id: hit.score for hit in index.search("cedar plank", 600).hits}
    assert len(every) == 600
    for filter, count in (
        (Filter(kinds=frozenset(["rare"])), 10),
        (Filter(where=lambda d: d.id.endswith("99")), 6),
        (Filter(actors=frozenset(["w3"])), 7),
        (Filter(ids=frozenset(["n599", "n000"])), 2),
    ):
        found = index.search("cedar plank", 10, filter=filter).hits
        assert len(found) == count and all(hit.score == every[hit.id] for hit in found)


def test_equals_beyond_the_pool_come_by_id_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "POOL_ALL_UP_TO", 50)
    monkeypatch.setattr(index_module, "POOL", 20)
    docs = [Document(f"n{n:03d}", "cedar plank", kind=str(n)) for n in range(300)]
    for seed in range(3):
        random.Random(seed).shuffle(docs)
        assert ids(open_index(docs).search("cedar", 7)) == sorted(d.id for d in docs)[:7]
