"""What a session accepts: kinds, their fields, relations, and which kinds are pins.

Rules:
- With no kind declared every kind and field is accepted; with no relations declared, every relation.
- An open kind says what it is and closes nothing: its rows may have other fields too, and while every declared kind is
  open, every other kind is accepted.
- Declaring only widens: fields and relations are added behind those there are, so that a pin's locator (its first
  declared field after id) never changes under its rows.
- CONCEPT, FILE, SYMBOL and NOTE are always kinds, with any field until declared; six relations are always known.
- A pin's id follows from its locator alone, so the same source artefact has the same id in every session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from pinfold.dialect.format import format_schema_kind, format_schema_relations
from pinfold.entry import Entry, Fact

OPEN_KINDS = ("CONCEPT", "FILE", "SYMBOL", "NOTE")
BASE_RELATIONS = ("relates_to", "depends_on", "implements", "references", "similar_to", "contains")
FREE_RELATIONS = frozenset((*BASE_RELATIONS, "derived_from"))
"""Relations every session has: what a row rests on is not for a schema to forbid."""
FREE_FIELDS = frozenset({"recycle", "ttl", "expires", "superseded_by", "valid_from", "valid_until"})
"""Fields every kind has: how long a row lives, holds and stands is not for a schema to forbid."""

ID_CHARS = 64
_LOSSY_TAIL = 13  # "_" and 12 hex digits


class Kind(msgspec.Struct, frozen=True):
    """A declared kind: its fields after id, in display order; extra holds keys of a later version's fact."""

    name: str
    fields: tuple[str, ...]
    pin: bool = False
    extra: dict[str, Any] | None = None

    @property
    def locator(self) -> str | None:
        """The field a pin is identified by, None where no field is declared."""
        return self.fields[0] if self.fields else None

    @property
    def is_open(self) -> bool:
        return self.extra is not None and bool(self.extra.get("open"))


class Schema:
    """The declared kinds and relations of a session. Changed by APPLY only; seq is that of its last change."""

    __slots__ = ("_orders", "is_closed", "kinds", "relations", "seq")

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.is_closed = False
        self.relations: tuple[str, ...] | None = None
        self.seq = 0
        self._orders: dict[tuple[str, tuple[str, ...]], tuple[int, ...] | None] = {}

    def copy(self) -> Schema:
        """Return a schema of its own with the same content."""
        other = Schema()
        other.kinds = dict(self.kinds)
        other.is_closed = self.is_closed
        other.relations = self.relations
        other.seq = self.seq
        return other

    def put(self, kind: Kind) -> None:
        """Declare a kind, in place of what was declared under its name."""
        self.kinds[kind.name] = kind
        self.is_closed = any(not known.is_open for known in self.kinds.values())
        self._orders.clear()

    def accepts_kind(self, kind: str) -> bool:
        """Return whether a node of this kind may be created."""
        return not self.is_closed or kind in self.kinds or kind in OPEN_KINDS

    def accepts_field(self, kind: str, field: str) -> bool:
        """Return whether a node of this (accepted) kind may have the field."""
        if not self.kinds or field in FREE_FIELDS:
            return True
        declared = self.kinds.get(kind)
        return declared is None or declared.is_open or field in declared.fields

    def accepts_relation(self, relation: str) -> bool:
        """Return whether an edge may carry the relation."""
        return self.relations is None or relation in self.relations or relation in FREE_RELATIONS

    def locator(self, kind: str) -> str | None:
        """Return the locator field of a pin kind, None for every other kind. A pin without fields has the locator ""."""
        declared = self.kinds.get(kind)
        if declared is None or not declared.pin:
            return None
        return declared.locator or ""

    def known_kinds(self) -> list[str]:
        """Return what a suggestion may name."""
        return [*self.kinds, *(k for k in OPEN_KINDS if k not in self.kinds)]

    def known_relations(self) -> list[str]:
        """Return what a suggestion may name."""
        return [*(self.relations or ()), *(r for r in BASE_RELATIONS if r not in (self.relations or ()))]

    def order(self, kind: str, keys: tuple[str, ...]) -> tuple[int, ...] | None:
        """Return the positions of keys in display order (declared first, then as written), None where that is as it is."""
        declared = self.kinds.get(kind)
        if declared is None:
            return None
        known = self._orders.get((kind, keys), False)
        if known is False:
            place = {field: i for i, field in enumerate(declared.fields)}
            after = len(place)
            ranked = tuple(sorted(range(len(keys)), key=lambda i: (place.get(keys[i], after), i)))
            known = None if ranked == tuple(range(len(keys))) else ranked
            if len(self._orders) > 10_000:
                self._orders.clear()
            self._orders[(kind, keys)] = known
        return known  # type: ignore[return-value]

    def lines(self) -> list[str]:
        """Return the SCHEMA lines that declare this schema: kinds as declared, then the relations."""
        out = [format_schema_kind(k.name, k.fields, k.pin) + _told_more(k) for k in self.kinds.values()]
        if self.relations is not None:
            out.append(format_schema_relations(self.relations))
        return out

    def dump(self) -> object:
        """Return all of it in builtins."""
        kinds = [[k.name, list(k.fields), k.pin, k.extra] for k in self.kinds.values()]
        return {"v": 1, "seq": self.seq, "kinds": kinds, "relations": None if self.relations is None else list(self.relations)}

    @classmethod
    def load(cls, dumped: Any) -> Schema:
        """Return the schema of what dump gave."""
        schema = cls()
        schema.seq = dumped["seq"]
        for name, fields, pin, extra in dumped["kinds"]:
            schema.put(Kind(name, tuple(fields), pin, extra))
        schema.relations = None if dumped["relations"] is None else tuple(dumped["relations"])
        return schema


def _told_more(kind: Kind) -> str:
    names = (kind.extra or {}).get("unique")
    return (f" ; unique={' '.join(names)}" if names else "") + (" ; open=true" if kind.is_open else "")


_KNOWN_KEYS = frozenset({"f", "kind", "fields", "pin", "relations"})


def _apply_put(schema: Schema, fact: Fact, entry: Entry) -> None:
    if "kind" in fact:
        extra = {k: v for k, v in fact.items() if k not in _KNOWN_KEYS} or None
        schema.put(Kind(fact["kind"], tuple(fact.get("fields", ())), bool(fact.get("pin")), extra))
    if "relations" in fact:
        schema.relations = tuple(fact["relations"])
    schema.seq = entry.seq


APPLY: dict[str, Callable[[Schema, Fact, Entry], None]] = {"schema.put": _apply_put}
"""Fact name -> total function. A schema.put holds one whole kind (kind, fields, pin) or all relations (relations)."""


def kind_fact(kind: Kind) -> Fact:
    """Return the fact that makes the schema hold exactly this kind."""
    return {"f": "schema.put", "kind": kind.name, "fields": list(kind.fields), "pin": kind.pin, **(kind.extra or {})}


def relations_fact(relations: Iterable[str]) -> Fact:
    """Return the fact that makes the schema hold exactly these relations."""
    return {"f": "schema.put", "relations": list(relations)}


def derive_id(kind: str, locator: str) -> str:
    """Return the id of a pin: KIND_ and the locator in [A-Za-z0-9_].

    Runs of other characters become "_". Where that or the 64-character limit loses anything, 12 hex digits of the
    locator's SHA-256 follow, so that src/a.py, src_a.py and src-a/py are three ids.
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "_", locator)
    head = f"{kind}_"
    if plain == locator and len(head) + len(plain) <= ID_CHARS:
        return head + plain
    from hashlib import sha256  # OpenSSL: not at every start

    digest = sha256(locator.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{head}{plain[: ID_CHARS - _LOSSY_TAIL - len(head)]}_{digest}"


def near(name: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """Return up to count of the candidates that a writer of name may have meant, nearest first. For short lists."""
    from difflib import get_close_matches  # only a refusal needs it

    folded: dict[str, str] = {}
    for candidate in candidates:
        folded.setdefault(candidate.lower(), candidate)
    return [folded[match] for match in get_close_matches(name.lower(), list(folded), n=count)]


_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-"
_PROBED_CHARS = 24
_PROBED_KINDS = 256
_PROBED_LOCATOR = 1_000


def near_ids(name: str, exists: Callable[[str], bool], count: int = 3, kinds: Iterable[str] = ()) -> list[str]:
    """Return up to count existing ids that name may mean: the pins of these kinds whose locator it is, and ids one slip away.

    A slip is case, a character changed, swapped, missing or too many. Asks for a bounded number of spellings (about 130 a
    character) instead of reading the graph. Order: as listed, then by id.
    """
    found: list[str] = []
    cut = name[:_PROBED_CHARS]
    rest = name[_PROBED_CHARS:]

    def take(spellings: Iterable[str]) -> bool:
        for spelling in spellings:
            if spelling != name and spelling not in found and exists(spelling):
                found.append(spelling)
                if len(found) >= count:
                    return True
        return False

    places = range(len(cut))
    if (
        take(derive_id(kind, name[:_PROBED_LOCATOR]) for kind in islice(kinds, _PROBED_KINDS))
        or take((name.upper(), name.lower(), name.capitalize(), name.replace("-", "_"), name.replace("_", "-")))
        or take(cut[:i] + cut[i + 1] + cut[i] + cut[i + 2 :] + rest for i in range(len(cut) - 1))
        or take(cut[:i] + cut[i + 1 :] + rest for i in reversed(places))
        or take(cut[:i] + c + cut[i + 1 :] + rest for i in reversed(places) for c in _ALPHABET)
        or take(cut[:i] + c + cut[i:] + rest for i in range(len(cut), -1, -1) for c in _ALPHABET)
    ):
        pass
    return found
