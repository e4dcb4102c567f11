"""The question sets for recall: corpora from files, one store mixed of all of them, queries with typos. Never part of the project.

Where they are: `--data DIR` of the report, $PINFOLD_RECALL_DATA, or `../shared/data/recall` beside the checkout.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinfold.recall.bench import read_corpora

DATA = "PINFOLD_RECALL_DATA"
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "recall"


@dataclass(frozen=True)
class Query:
    text: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class Corpus:
    """Documents as the files have them, and the queries that have an answer among them."""

    set: str
    name: str
    rows: list[dict[str, Any]]
    queries: list[Query]


def files() -> list[Path]:
    """Return the sets' files in order of name, none where there are none."""
    return sorted(Path(os.environ.get(DATA) or BESIDE).glob("*.jsonl"))


def corpora(paths: list[Path]) -> Iterator[Corpus]:
    """Yield every corpus of the files."""
    for path in paths:
        for number, found in enumerate(read_corpora(path)):
            queries = [Query(q["text"], frozenset(q["relevant"])) for q in found["queries"] if q["relevant"]]
            yield Corpus(str(found["set"]), f"{found['set']} {number}", found["documents"], queries)


def mixed(every: list[Corpus]) -> Corpus:
    """Return one store of all corpora: ids and groups are told apart by where they came from."""
    rows: list[dict[str, Any]] = []
    queries: list[Query] = []
    for corpus in every:
        for row in corpus.rows:
            group = row.get("group")
            rows.append({**row, "id": f"{corpus.name}/{row['id']}", "group": f"{corpus.name}/{group}" if group else None})
        queries += [Query(q.text, frozenset(f"{corpus.name}/{id}" for id in q.relevant)) for q in corpus.queries]
    return Corpus("mixed", "mixed", rows, queries)


def with_typos(text: str, share: float = 0.3, seed: int = 5) -> str:
    """Return the text with one slip in a share of its words of more than four letters; the same text gets the same slips."""
    dice = random.Random(f"{seed}:{text}")

    def slip(found: re.Match[str]) -> str:
        word = found[0]
        if dice.random() >= share:
            return word
        place = dice.randrange(1, len(word) - 1)
        how = dice.randrange(4)
        if how == 0:
            return word[:place] + word[place + 1 :]
        if how == 1:
            return word[: place - 1] + word[place] + word[place - 1] + word[place + 1 :]
        if how == 2:
            return word[:place] + word[place] + word[place:]
        return word[:place] + dice.choice("abcdefghijklmnopqrstuvwxyz") + word[place + 1 :]

    return re.sub(r"[^\W\d_]{5,}", slip, text)


def sample(queries: list[Query], most: int) -> list[Query]:
    """Return at most so many queries, evenly from the whole list."""
    if len(queries) <= most:
        return queries
    return [queries[number * len(queries) // most] for number in range(most)]
