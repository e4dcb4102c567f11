"""One change of one session, as the journal keeps it: who, when, after what, and the facts that came of it.

Facts are maps that record outcomes (minted ids, absolute times, chosen victims), so that replay mints nothing and
needs no clock. Each has its name under "f":

    slot.put     k, i, v | h n t        slot.drop     k, why?          touch   at, …            session.put  …
    promise.put  k, s, n, …             promise.drop  k
    node.put     id, kind, fields       node.drop     id
    edge.put     id, src, rel, dst, fields             edge.drop  id
    law.put      id, fields             law.drop      id               schema.put    …

A put may say what its slot or row rests on: in [[name, mark], …], see `state/inputs.py`.
Unknown optional keys of a fact are kept; an unknown fact refuses to open the session (`NewerFormat`).
An entry's hash is BLAKE2b-128 of its bytes, which hold the hash of the entry before: checksum and chain in one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.errors import JournalCorrupt, NewerFormat, Refused

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL, a tenth of the start of `pinfold peek`
except ImportError:
    from hashlib import blake2b

__all__ = ["ENTRY_FORMAT", "GENESIS", "Entry", "Fact", "Record", "blake2b", "decode_entry", "encode_entry", "hash_of"]

ENTRY_FORMAT = 1
GENESIS = b""
"""The previous hash of a session's first entry."""

Fact = dict[str, Any]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One turn's outcome. seq counts from 1 without gaps; at_ms is Unix time by the journal's clock.

    result: what the caller was answered, kept only with a request_id so that a retry gets the same answer.
    """

    seq: int
    prev_hash: bytes
    at_ms: int
    request_id: str | None
    actor: str | None
    facts: list[Fact]
    result: Any = None


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry as a backend sees it: its seq, its hash, its bytes."""

    seq: int
    hash: bytes
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)
_PREFIX = bytes([ENTRY_FORMAT])


def hash_of(body: bytes) -> bytes:
    """Return the 16-byte hash that names these bytes in the chain."""
    return blake2b(body, digest_size=16).digest()


def encode_entry(entry: Entry) -> Record:
    """Return the record of an entry: one format byte, then MessagePack. Raises Refused `bad_text` for what UTF-8 cannot hold."""
    try:
        body = _PREFIX + _encoder.encode(entry)
    except UnicodeEncodeError as error:
        hint = "a value may hold it, as JSON; a name, a reason or an id may not"
        raise Refused("a text with half of a surrogate pair cannot be stored", code="bad_text", hint=hint) from error
    return Record(entry.seq, hash_of(body), body)


def decode_entry(record: Record) -> Entry:
    """Return the entry of a record. Raises JournalCorrupt where the bytes do not match their hash, NewerFormat."""
    if hash_of(record.body) != record.hash:
        raise JournalCorrupt(f"entry {record.seq} does not match its checksum", seq=record.seq, hint="run `pinfold doctor`")
    if record.body[:1] != _PREFIX:
        raise NewerFormat(
            f"entry {record.seq} has format {record.body[0] if record.body else 'none'}, this pinfold knows {ENTRY_FORMAT}",
            seq=record.seq,
            hint="upgrade pinfold",
        )
    try:
        entry = _decoder.decode(record.body[1:])
    except msgspec.DecodeError as error:
        raise JournalCorrupt(f"entry {record.seq} cannot be decoded: {error}", seq=record.seq, hint="run `pinfold doctor`") from error
    if entry.seq != record.seq:
        raise JournalCorrupt(f"entry {record.seq} says it is {entry.seq}", seq=record.seq, hint="run `pinfold doctor`")
    return entry
