"""Measure recall on question sets: `pinfold bench recall FILE… --json` prints what `bench_recall` returns.

A file has one corpus a line: {"set", "corpus", "documents": [{"id", "text", "by", "group", "at", "name"}], "queries":
[{"id", "text", "relevant": [ids], "category"}]}. Figures are means over all queries of a set.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinfold.errors import ConfigurationError
from pinfold.recall.document import ROLES, Document, indexed_text
from pinfold.recall.embed import Embedder, open_embedder
from pinfold.recall.index import RecallIndex, open_index

LEVELS = ("none", "static", "minilm")
"""What the levels 0, 1 and 2 embed with."""
DEPTH = 20
CHARS_PER_TOKEN = 4


class SetReport(msgspec.Struct, frozen=True, rename={"recall_5": "recall@5", "recall_10": "recall@10", "recall_20": "recall@20"}):
    """One set's figures. recall_k: mean share of a query's relevant documents among the first k hits."""

    set: str
    queries: int
    recall_5: float
    recall_10: float
    recall_20: float
    any_5: float = msgspec.field(name="any@5")
    all_5: float = msgspec.field(name="all@5")
    mrr: float
    tokens_10: float = msgspec.field(name="tokens@10")
    """Mean tokens of the first ten hits, estimated at four characters each."""
    ms_per_query: float
    build_s: float


def documents_of(rows: Iterable[dict[str, Any]]) -> list[Document]:
    """Return the documents of a corpus line; `by` is a role where it is one of the usual roles, else a speaker."""
    out = []
    for row in rows:
        by = row.get("by") or None
        role = by if by in ROLES else None
        out.append(Document(row["id"], row["text"], group=row.get("group"), speaker=None if role else by, role=role, date=row.get("at"), name=row.get("name")))
    return out


def read_corpora(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the corpora of a file. Raises ConfigurationError naming the line that is none."""
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    corpus = json.loads(line)
                    if not isinstance(corpus, dict) or not {"set", "documents", "queries"} <= corpus.keys():
                        raise ValueError("set, documents and queries are needed")
                    yield corpus
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", code="bench_file", hint="give a .jsonl file of corpora") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}:{number} is no corpus: {error}", code="bench_file", hint="one JSON object a line") from error


def _ready(corpus: dict[str, Any], embedder: Embedder | None) -> tuple[RecallIndex, dict[str, str], float]:
    documents = documents_of(corpus["documents"])
    begin = time.perf_counter()
    index = open_index(documents, embedder)
    index.embed_pending()
    index.search("ready?")
    return index, {d.id: indexed_text(d) for d in documents}, time.perf_counter() - begin


def bench_recall(paths: Sequence[str | Path], level: int | str | Embedder = 1, told: Callable[[int, int], None] | None = None) -> list[SetReport]:
    """Return a report for each set, in the order met. level: 0, 1, 2, or any embedder `open_embedder` knows.

    Duplicates are not collapsed here: the sets count every turn. told: called with (questions asked, questions read so far).
    """
    if isinstance(level, int) and not 0 <= level < len(LEVELS):
        raise ConfigurationError(f"there is no level {level}", code="embedder_unknown", hint="0, 1 or 2")
    embedder = open_embedder(LEVELS[level] if isinstance(level, int) else level)
    sums: dict[str, list[float]] = {}
    asked = known = 0
    for path in paths:
        for corpus in read_corpora(Path(path)):
            index, texts, build_s = _ready(corpus, embedder)
            total = sums.setdefault(str(corpus["set"]), [0.0] * 10)
            total[9] += build_s
            known += len(corpus["queries"])
            for query in corpus["queries"]:
                asked += 1
                if told is not None:
                    told(asked, known)
                relevant = set(query["relevant"])
                if not relevant:
                    continue
                begin = time.perf_counter()
                found = [hit.id for hit in index.search(query["text"], DEPTH, collapse=False).hits]
                total[8] += 1000.0 * (time.perf_counter() - begin)
                shares = [len(relevant.intersection(found[:k])) / len(relevant) for k in (5, 10, 20)]
                first = next((place for place, id in enumerate(found, 1) if id in relevant), 0)
                tokens = sum(len(texts[id]) for id in found[:10]) / CHARS_PER_TOKEN
                row = (1.0, *shares, float(shares[0] > 0), float(shares[0] == 1.0), 1.0 / first if first else 0.0, tokens)
                for place, value in enumerate(row):
                    total[place] += value
    return [_report(name, total) for name, total in sums.items()]


def _report(name: str, total: list[float]) -> SetReport:
    count = max(1.0, total[0])
    r5, r10, r20, any5, all5, mrr, tokens, ms = (value / count for value in total[1:9])
    return SetReport(
        set=name,
        queries=int(total[0]),
        recall_5=round(r5, 4),
        recall_10=round(r10, 4),
        recall_20=round(r20, 4),
        any_5=round(any5, 4),
        all_5=round(all5, 4),
        mrr=round(mrr, 4),
        tokens_10=round(tokens, 1),
        ms_per_query=round(ms, 3),
        build_s=round(total[9], 3),
    )
