"""What the package knows of words: the vocabulary of word pieces in order of frequency, and the stems of its plain English words.

Both are files made by `tools/distil.py` and checked by their hash when they are first read.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from functools import lru_cache

from pinfold.errors import Broken

VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
STEMS_SHA256 = "5ce018b0ec3a811c8d66f76ce05be89afdc7fbc3501180620285e45743d5e842"
FIRST_RANKED = 1_996
"""The vocabulary is in order of frequency from this id on."""
BACKGROUND_RANKS = 20_000


def read_data(name: str, sha256: str) -> bytes:
    """Return a file of the package's data. Raises Broken where it is not the one this version was made with."""
    with open(os.path.join(os.path.dirname(__file__), "data", name), "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Broken(f"the package's {name} is damaged: its SHA-256 differs", code="table_damaged", hint="reinstall pinfold", file=name)
    return data


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Return the 30,522 word pieces in id order."""
    return tuple(read_data("vocabulary.txt", VOCABULARY_SHA256).decode("utf-8").splitlines())


@lru_cache(maxsize=1)
def _words() -> tuple[Mapping[str, str], Mapping[str, int]]:
    lines = read_data("stems.txt", STEMS_SHA256).decode("ascii").split("\n")
    stems, ranks = dict[str, str](), dict[str, int]()
    for rank, (word, stem) in enumerate(zip(vocabulary()[FIRST_RANKED:], lines, strict=False)):
        if word.isascii() and word.isalpha():
            stems[word] = stem = stem or word
            ranks.setdefault(stem, rank)
    return stems, ranks


def known_stem(word: str) -> str | None:
    """Return the Snowball stem of one of the vocabulary's 21,719 plain words: what need not be worked out."""
    return _words()[0].get(word)


def rarity(term: str) -> float:
    """Return 0..1: how rare a word term is in ordinary English, by its commonest word; 1 for names, codes and other scripts."""
    rank = _words()[1].get(term)
    return 1.0 if rank is None else min(1.0, math.log(rank + 2) / math.log(BACKGROUND_RANKS))
