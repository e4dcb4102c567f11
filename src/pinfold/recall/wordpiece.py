"""WordPiece of the uncased BERT vocabulary in plain Python: text -> ids, as the models it was trained with saw them.

Control characters go, ideographs and punctuation stand alone, letters lose case and accents; then each word is cut
greedily into the longest pieces the vocabulary has ("##" marks a continuation), or is [UNK] as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

WORD_CHARS = 100
WORDS_CACHED = 200_000
_ASCII = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DROPPED = frozenset(("Cc", "Cf", "Co", "Cn", "Cs"))
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """A vocabulary and a cache of the words seen. Not thread-safe beyond what dict is: entries are only ever added."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.ids = {piece: number for number, piece in enumerate(vocabulary)}
        self.unknown = self.ids["[UNK]"]
        self._longest = max(map(len, vocabulary))
        self._words: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without [CLS] and [SEP]."""
        out: list[int] = []
        cache = self._words
        for word in self.split(text):
            known = cache.get(word)
            if known is None:
                if len(cache) >= WORDS_CACHED:
                    cache.clear()
                known = cache[word] = self._cut(word)
            out += known
        return out

    @staticmethod
    def split(text: str) -> list[str]:
        """Return the words and punctuation marks of a text, lower-case, without accents."""
        if text.isascii() and not _CONTROL.search(text):
            return _ASCII.findall(text.lower())
        spaced = "".join(map(_clean, text))
        stripped = "".join(map(_mark, unicodedata.normalize("NFD", spaced).lower()))
        return stripped.split()

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > WORD_CHARS:
            return (self.unknown,)
        out: list[int] = []
        begin = 0
        while begin < len(word):
            for end in range(min(len(word), begin + self._longest), begin, -1):
                piece = word[begin:end] if begin == 0 else "##" + word[begin:end]
                found = self.ids.get(piece)
                if found is not None:
                    out.append(found)
                    begin = end
                    break
            else:
                return (self.unknown,)
        return tuple(out)


def _clean(char: str) -> str:
    if "!" <= char <= "~":
        return char
    if char in " \t\n\r":
        return " "
    if char == "\ufffd" or unicodedata.category(char) in _DROPPED:
        return ""
    if char.isspace():
        return " "
    code = ord(char)
    if code >= 0x3400 and any(low <= code <= high for low, high in _IDEOGRAPHS):
        return f" {char} "
    return char


def _mark(char: str) -> str:
    if "a" <= char <= "z" or char == " ":
        return char
    if char.isascii():
        return char if char.isalnum() else f" {char} "
    category = unicodedata.category(char)
    if category == "Mn":
        return ""
    return f" {char} " if category[0] == "P" else char
