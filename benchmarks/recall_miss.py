"""The honest miss through sessions: what `resolve_context` says of queries that have an answer in a store, and of foreign ones."""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Row, must_hold
from benchmarks.recall_peers import ASKED, PLANTED
from benchmarks.recall_sets import Corpus, Query, corpora, files, sample
from benchmarks.silo import Bench
from pinfold import Memory, Session, limits


def quoted(text: str) -> str:
    """Return a value of the dialect in quotes."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return '"' + "".join(char if char >= " " else f"\\u{ord(char):04x}" for char in text) + '"'


def line_of(row: dict[str, Any]) -> str:
    """Return the line that writes a set's document into a session; a text longer than a field may be is cut."""
    text = row["text"].encode()[: limits.FIELD_VALUE_BYTES].decode("utf-8", "ignore")
    fields = {"label": row.get("name"), "content": text, "by": row.get("by"), "group": row.get("group"), "at": row.get("at")}
    return "+ NOTE [NEW] ; " + " ; ".join(f"{key}={quoted(value)}" for key, value in fields.items() if value)


def fill(session: Session, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Write documents into a session; return their ids by the ids of the rows."""
    ids: dict[str, str] = {}
    for at in range(0, len(rows), 500):
        part = rows[at : at + 500]
        ids.update(zip((row["id"] for row in part), _minted(session.mutate("\n".join(map(line_of, part))), len(part)), strict=True))
    return ids


def _minted(answer: Any, count: int) -> list[str]:
    with must_hold("miss", "pinfold"):
        minted = list(answer.minted.values())
        assert len(minted) == count, f"{len(minted)} of {count} documents were written"
    return minted


def is_miss(session: Session, query: str) -> bool:
    return session.resolve_context(query).source == "miss"


def check() -> None:
    """Raise WrongAnswer unless what is there is found, by `search` too, and what is not there is a miss: always one of them costs nothing."""
    with Memory("memory://", background=False) as memory, must_hold("miss", "pinfold"):
        session = memory.session("bench")
        ids = fill(session, [{"id": id, "text": text} for id, text in PLANTED])
        assert not is_miss(session, ASKED[0]) and session.resolve_context(ASKED[0]).node_id == ids[ASKED[1]]
        assert [hit.node_id for hit in session.search(ASKED[0], top_k=10).direct] == [ids[ASKED[1]]]
        assert is_miss(session, "the chess tournament of the submarine crew")


def miss(bench: Bench) -> None:
    """Honest miss through sessions: queries asked of their own store, of another one of their set, of one of another set; in small stores too."""
    paths = files()
    if not paths:
        bench.table.note("miss", "left out: no question sets; give their folder by --data")
        return
    check()
    most = 5 if bench.small else 20 if bench.quick else 60
    every = list(corpora(paths))
    asked = {corpus.name: sample(corpus.queries, most) for corpus in every}
    dice = random.Random(17)
    table: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as opened:
        stores: dict[str, tuple[Session, dict[str, str]]] = {}
        for corpus in every:
            session = opened.enter_context(Memory("memory://", background=False)).session("bench")
            stores[corpus.name] = session, fill(session, corpus.rows)
        for corpus in every:
            figures = table.setdefault(corpus.set, {"lost": [], "extra": [], "caught, same set": [], "caught, another set": []})
            siblings = [other for other in every if other.set == corpus.set and other is not corpus]
            others = [other for other in every if other.set not in (corpus.set, "memdaily") or (corpus.set == "memdaily") != (other.set == "memdaily")]
            session, ids = stores[corpus.name]
            for query in asked[corpus.name]:
                lost = is_miss(session, query.text)
                hits = [hit.node_id for hit in session.search(query.text, top_k=10).direct] if lost else []
                figures["lost"].append(float(lost))
                figures["extra"].append(float(any(ids[id] in hits for id in query.relevant if id in ids)))
                for name, foreign in (("caught, another set", others), ("caught, same set", siblings)):
                    if foreign:
                        figures[name].append(float(is_miss(stores[dice.choice(foreign).name][0], query.text)))
    means: dict[str, list[float]] = {}
    for name, figures in table.items():
        for figure, values in figures.items():
            if values:
                share = statistics.fmean(values)
                bench.table.rows.append(Row(f"miss, full stores, {name}", figure, "share", [share], note=f"{len(values)} queries"))
                if name != "memdaily":  # unspaced scripts are flagged, never declared missed
                    means.setdefault(figure, []).append(share)
    for figure, shares in means.items():
        bench.table.rows.append(Row("miss, full stores, mean of the sets", figure, "share", [statistics.fmean(shares)], note="without memdaily"))
    _small_stores(bench, [corpus for corpus in every if corpus.set in ("locomo", "realtalk", "beam100k")], asked)
    check()


def _small_stores(bench: Bench, every: list[Corpus], asked: dict[str, list[Query]]) -> None:
    """Stores of so many memories in a row that hold the first piece of evidence; foreign queries of another corpus of the set."""
    dice = random.Random(23)
    per_corpus = 2 if bench.small else 7
    for size in (10, 30) if bench.small else (10, 30, 100, 300):
        figures: dict[str, list[float]] = {"lost": [], "extra": [], "caught, same set": []}
        for corpus in every:
            place = {row["id"]: number for number, row in enumerate(corpus.rows)}
            for query in sample(asked[corpus.name], per_corpus):
                gold = min((place[id] for id in query.relevant if id in place), default=None)
                if gold is None:
                    continue
                at = max(0, min(gold - dice.randrange(size), len(corpus.rows) - size))
                with Memory("memory://", background=False) as memory:
                    session = memory.session("bench")
                    ids = fill(session, corpus.rows[at : at + size])
                    lost = is_miss(session, query.text)
                    hits = [hit.node_id for hit in session.search(query.text, top_k=10).direct] if lost else []
                    figures["lost"].append(float(lost))
                    figures["extra"].append(float(any(ids.get(id) in hits for id in query.relevant)))
                    other = dice.choice([c for c in every if c.set == corpus.set and c is not corpus])
                    figures["caught, same set"].append(float(is_miss(session, dice.choice(asked[other.name]).text)))
        for name, values in figures.items():
            bench.table.rows.append(Row(f"miss, stores of {size}", name, "share", [statistics.fmean(values)], note=f"{len(values)} queries"))


BENCHES: dict[str, Callable[[Bench], None]] = {"miss": miss}
