"""How many tokens a text costs, estimated without a tokeniser.

A sum of weights over what stands in the text: runs and characters of small letters and capitals, groups of digits, runs of
signs, and characters of other scripts. The weights come from tools/calibrate_tokens.py, against o200k, over maps of
rows; a margin keeps the estimate from being under. Additive over lines: a map is the sum of its lines.

Runs are found by translating and splitting bytes, which is several times faster than matching words one by one: a pin map
weighs every line it considers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from operator import mul

from pinfold.errors import ConfigurationError, Refused

FEATURES = (
    "lower runs", "lower chars", "capital runs", "capital chars", "digit groups", "sign runs", "sign threes", "blanks", "newline",
    "han", "kana", "hangul", "cyrillic runs", "cyrillic chars", "latin accented", "other letters", "wide", "other",
)  # fmt: skip
WEIGHTS = (
    0.84, 0.038, 0.13, 0.54, 1.06, 0.86, 0.35, 0.6, 0.3,
    0.77, 0.6, 0.6, 0.75, 0.14, 0.15, 0.9, 2.0, 1.1,
)  # fmt: skip
MARGIN = 1.045

_LOWER = b"abcdefghijklmnopqrstuvwxyz"
_UPPER = _LOWER.upper()
_DIGIT = b"0123456789"
_BLANK = b" \t\n\0"
_SIGN = bytes(code for code in range(1, 128) if code not in _LOWER + _UPPER + _DIGIT + _BLANK)


def _only(kept: bytes) -> bytes:
    """Return a table that turns every other byte into a blank, so that split() finds the runs of kept."""
    return bytes(code if code in kept else 32 for code in range(256))


_LOWERS, _UPPERS, _DIGITS, _SIGNS = _only(_LOWER), _only(_UPPER), _only(_DIGIT), bytes(46 if code in _SIGN else 32 for code in range(256))
_FOURS = bytes(48 if code in _DIGIT else 32 for code in range(256))

_BEYOND = "[^\x00-\x7f]+"
_FOREIGN = (
    "([\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])|([\u3040-\u30ff])|([\uac00-\ud7af\u1100-\u11ff])|([\u0400-\u052f]+)"
    "|([\u00c0-\u024f])|([\u0250-\u03ff\u0530-\u10ff\u1200-\u1fff])|([\U00010000-\U0001ffff])|([^\x00-\x7f])"
)
"""A group for each of the features of letters and signs beyond ASCII, save one: Cyrillic counts runs and characters.
Compiled when a text has such: that takes as long as reading a pin map."""


def features(text: str) -> tuple[float, ...]:
    """Return how often each of FEATURES is in the text."""
    foreign = _NOTHING
    plain = text
    if not text.isascii():
        foreign = _foreign_features(text)
        plain = re.sub(_BEYOND, "\0", text)
    data = plain.encode("ascii", "replace")
    signs = data.translate(_SIGNS)
    return (
        len(data.translate(_LOWERS).split()),
        len(data) - len(data.translate(None, _LOWER)),
        len(data.translate(_UPPERS).split()),
        len(data) - len(data.translate(None, _UPPER)),
        len(data.translate(_DIGITS).split()) + data.translate(_FOURS).count(b"0000"),
        len(signs.split()),
        signs.count(b"..."),
        data.count(b"  "),
        data.count(b"\n"),
        *foreign,
    )


_NOTHING: tuple[float, ...] = ()


def _foreign_features(text: str) -> tuple[float, ...]:
    counts = [0.0] * 9
    for m in re.compile(_FOREIGN).finditer(text):
        place = m.lastindex or 8
        if place == 4:
            counts[3] += 1
            counts[4] += m.end() - m.start()
        else:
            counts[place - 1 if place < 4 else place] += 1
    return tuple(counts)


def raw(text: str) -> float:
    """Return the estimate before rounding and margin."""
    total: float = sum(map(mul, features(text), WEIGHTS))
    return total


def line_tokens(line: str) -> float:
    """Return what a line with its newline adds to a text, margin included. estimate() of the text is about their sum, rounded up."""
    return (raw(line) + WEIGHTS[8]) * MARGIN


def estimate(text: str) -> int:
    """Return the tokens of a text, rounded up."""
    return -int(-raw(text) * MARGIN // 1)


def o200k_counter() -> Callable[[str], float]:
    """Return an exact counter for pin_map(count=…, counter="o200k"): tokens of a line and its newline.

    A token never spans a line end and what follows it, so lines add up. Raises ConfigurationError without bpe-openai.
    """
    try:
        bpe_openai = import_module("bpe_openai")
    except ImportError as error:
        raise ConfigurationError("the exact counter needs bpe-openai", hint="pip install 'pinfold[tokens]'") from error
    encode = bpe_openai.get_encoding("o200k_base").encode_ordinary
    return lambda line: float(len(encode(line + "\n")))


def counter_of(name: str) -> Callable[[str], float]:
    """Return a counter by its name: "est", or "o200k" for exact tokens. Raises Refused `bad_argument`, ConfigurationError."""
    if name == "est":
        return line_tokens
    if name == "o200k":
        return o200k_counter()
    raise Refused(f"there is no counter {name!r}", code="bad_argument", hint="est, or o200k")
