"""The one analyser, for what is indexed and what is asked: text in any script -> word terms and character grams.

Rules that must stay true:
- index and query go through the same functions, so a term can only fail to match because the texts differ;
- a term of one token never depends on its neighbours (tokens are analysed once and cached);
- scripts written without spaces give every character and every pair of neighbours, so a query of one or two
  characters matches; a Latin word inside such a run is a token of its own;
- what changes a term changes ANALYSER_VERSION, which keys every cached index.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from pinfold.recall.english import known_stem

ANALYSER_VERSION = 1
GRAM_CHARS = 4
"""Length of character grams. Three match too much, five lose short words and typos near an end."""
TOKEN_CHARS = 64
"""Longer tokens (base64, minified code) count by their first characters: no query types more."""
TOKENS_CACHED = 200_000

# --- scripts ----------------------------------------------------------------------------------------------------
# Han with its extensions, kana, bopomofo, Hangul, and the scripts of South-East Asia that put no space between words.
UNSPACED = (
    "\u3005\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\u0e01-\u0e3a\u0e40-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17dd\U00020000-\U0003134f"
)
# Vowel signs and points are not \w, yet belong to the word they stand in (Latin, Hebrew, Arabic, Indic).
MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u0900-\u0903\u093a-\u094f\u0951-\u0963\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a4d\u0a81-\u0acd\u0b01-\u0b4d\u0b82-\u0bcd"
    "\u0c00-\u0c4d\u0c81-\u0ccd\u0d00-\u0d4d"
)
EMOJI = "\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
_LETTER = rf"(?:[^\W_{UNSPACED}]|[{MARKS}])"
_JOIN = "_'’.\\-"
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]+(?:[_'.\-]+[A-Za-z0-9]+)*")
"""What `any_token` finds in ASCII, three times as fast."""
_SPLIT = re.compile(rf"[{_JOIN}]+")
_DOTTED = re.compile(r"['’.\-]+")
_INNER = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_PLAIN = re.compile(r"\w+")


# Made when the first text needs them: the large sets take as long to compile as numpy to load.
@lru_cache(maxsize=1)
def any_token() -> re.Pattern[str]:
    """Return the pattern of a token in any text: a run of an unspaced script, a word with marks inside, or an emoji."""
    return re.compile(rf"[{UNSPACED}]+|{_LETTER}+(?:[{_JOIN}]+{_LETTER}+)*|[{EMOJI}]")


@lru_cache(maxsize=1)
def _unspaced_char() -> re.Pattern[str]:
    return re.compile(rf"[{UNSPACED}]")


@lru_cache(maxsize=1)
def _emoji_char() -> re.Pattern[str]:
    return re.compile(rf"[{EMOJI}]")


# --- words that say nothing ---------------------------------------------------------------------------------------
_ARTICLES = "a an the this that these those there here"
_PREPOSITIONS = "of in to on at for with from by about as into"
_CONJUNCTIONS = "and or but than then so if not no yes"
_PRONOUNS = "i you he she it we they me him her us them my your his its our their"
_VERBS = "is are was were be been being am do does did done have has had would could should can will just"
_QUESTIONS = "what when where who whom which why how"
# What an apostrophe leaves behind, with and without it.
_DEBRIS = "s t re ve ll d m im ive don doesn didn isn aren wasn weren won couldn wouldn shouldn haven hasn hadn"
STOP_WORDS = frozenset(" ".join((_ARTICLES, _PREPOSITIONS, _CONJUNCTIONS, _PRONOUNS, _VERBS, _QUESTIONS, _DEBRIS)).split())

FIRST_PERSON = re.compile(r"\b(?:i|my|me|mine|myself|i['’]m|i['’]ve|we|our)\b")

# Letters that canonical decomposition leaves alone but readers type without their stroke.
_STROKES = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ё": "е", "ـ": ""})
_KEEPS_BREVE = "\u0306"
_INDIC = ("\u0900", "\u0dff")

_STEMMED_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u1f00", "\u1fff", "greek"),
    ("\u0400", "\u052f", "russian"),
    ("\u0531", "\u058f", "armenian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)


class Analysed(NamedTuple):
    """The terms of one text, in order, with repeats."""

    words: list[str]
    grams: list[str]


_stemmers: dict[str, Callable[[str], str]] = {}
_tokens: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}


def normalise(text: str) -> str:
    """Return text in NFKC: full-width letters, ligatures and half-width kana become the usual ones."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def fold(token: str) -> str:
    """Return a token without case and accents. Signs that are letters of their own (й, Indic vowels) stay."""
    lowered = token.casefold()
    if lowered.isascii():
        return lowered
    lowered = lowered.translate(_STROKES)
    out: list[str] = []
    for char in unicodedata.normalize("NFD", lowered):
        if unicodedata.combining(char) and not _INDIC[0] <= char <= _INDIC[1]:
            if char == _KEEPS_BREVE and out and out[-1] in "иу":
                out[-1] = unicodedata.normalize("NFC", out[-1] + char)
            continue
        out.append(char)
    return unicodedata.normalize("NFC", "".join(out))


def stem(word: str) -> str:
    """Return the Snowball stem of a folded word: English for ASCII, by script elsewhere, the word itself where none is known.

    Latin words of other languages are stemmed as English once their accents are folded away: guessing a language
    from one word would stem a query otherwise than the text it looks for.
    """
    if word.isascii():
        return word if word.isdecimal() else known_stem(word) or _stem_in("english", word)
    first = word[0]
    for low, high, language in _STEMMED_SCRIPTS:
        if low <= first <= high:
            return _stem_in(language, word) or word
    return word


def _stem_in(language: str, word: str) -> str:
    stemmer = _stemmers.get(language)
    if stemmer is None:
        import snowballstemmer

        stemmer = snowballstemmer.stemmer(language).stemWord if language in snowballstemmer.algorithms() else str
        _stemmers[language] = stemmer
    return stemmer(word)


def _unspaced(run: str) -> tuple[str, ...]:
    return (*run, *(run[i : i + 2] for i in range(len(run) - 1)))


def _grams_of(folded: str) -> tuple[str, ...]:
    marked = f"<{folded}>"
    return tuple(marked[i : i + GRAM_CHARS] for i in range(max(1, len(marked) - GRAM_CHARS + 1)))


def analyse_token(token: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (word terms, grams) of one token as the token pattern found it."""
    if not token.isascii():
        if _unspaced_char().match(token):
            terms = _unspaced(token)
            return terms, terms
        if _emoji_char().match(token):
            return (token,), (token,)
    token = token[:TOKEN_CHARS]
    words: list[str] = []
    parts = _SPLIT.split(token)
    for part in parts:
        lowered = fold(part)
        if not lowered or lowered in STOP_WORDS:
            continue
        words.append(stem(lowered))
        mixed_case = part.lower() != part.upper() and not (part.islower() or part.isupper() or part.istitle())
        letters_and_digits = part.isalnum() and not part.isalpha() and not part.isdigit()
        if mixed_case or letters_and_digits:
            inner = [piece.casefold() for piece in _INNER.findall(part)]
            if len(inner) > 1:
                words.extend(stem(piece) for piece in inner if len(piece) > 1 and piece not in STOP_WORDS)
    if "_" in token:
        identifiers = (piece.strip("_").casefold() for piece in _DOTTED.split(token))
        words.extend(name for name in identifiers if "_" in name)
    whole = fold(token).replace("’", "'")
    return tuple(words), () if whole in STOP_WORDS else _grams_of(whole)


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text, NFKC-normalised here: what `analyse_token` takes apart."""
    return _ASCII_TOKEN.findall(text) if text.isascii() else any_token().findall(normalise(text))


def analyse(text: str) -> Analysed:
    """Return the word terms and grams of a text, NFKC-normalised here. O(len(text)); empty lists where nothing counts."""
    words: list[str] = []
    grams: list[str] = []
    cache = _tokens
    for token in tokens_of(text):
        known = cache.get(token)
        if known is None:
            known = analyse_token(token)
            if len(token) <= TOKEN_CHARS:
                if len(cache) >= TOKENS_CACHED:
                    cache.clear()  # rare, and cheaper than the order of use
                cache[token] = known
        words += known[0]
        grams += known[1]
    return Analysed(words, grams)


def words(text: str) -> list[str]:
    """Return the word terms of a text."""
    return analyse(text).words


def grams(text: str) -> list[str]:
    """Return the character grams of a text."""
    return analyse(text).grams


def plain(text: str) -> list[str]:
    r"""Return the case-folded `\w+` tokens: how names are matched, stop words and all."""
    return _PLAIN.findall(normalise(text).casefold())


def unspaced_share(text: str) -> float:
    """Return the share 0..1 of a text's letters that belong to scripts without spaces (Han, kana, Hangul, Thai …).

    Digits and marks do not count: a date amid ideographs makes a text no less Chinese.
    """
    if text.isascii():
        return 0.0
    normal = normalise(text)
    unspaced = len(_unspaced_char().findall(normal))
    others = sum(map(str.isalpha, _unspaced_char().sub("", normal)))
    return unspaced / (unspaced + others) if unspaced else 0.0
