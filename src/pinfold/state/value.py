"""Values: what went in comes out. A value is str, bytes or JSON; this module is the one place that tells them apart.

A stored value is one of
    str, bytes                 kept as they are (immutable, so sharing them is safe)
    Json(text)                 encoded once on write and decoded anew at every read: callers get copies, not aliases
    Blob(sha256, size, kind)   the bytes live beside the journal; kind says what they decode to
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from pinfold import limits
from pinfold.entry import Fact
from pinfold.errors import JournalCorrupt, Refused


class Json(msgspec.Struct, frozen=True, gc=False):
    """A JSON value by its UTF-8 text."""

    text: bytes


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A large value by its SHA-256; kind is "s" (str), "b" (bytes) or "j" (JSON)."""

    sha256: bytes
    size: int
    kind: str


Stored = str | bytes | Json | Blob

_json_encode = msgspec.json.Encoder().encode
_json_decode = msgspec.json.Decoder().decode


def _json() -> Any:
    """Return the standard library's json, which knows lone surrogates; rarely needed, so not loaded at start."""
    import json

    return json


def _sha256(raw: bytes) -> bytes:
    from hashlib import sha256  # OpenSSL's: fast for large values, slow to load

    return sha256(raw).digest()


def pack_value(value: Any) -> tuple[Stored, int, bytes | None]:
    """Return (stored, size in bytes, blob bytes or None) of a caller's value.

    Raises Refused: `bad_value` for what would not come out as it went in, `value_too_large`.
    """
    if type(value) is str:
        try:
            size = utf8_bytes(value)
        except UnicodeEncodeError:  # a lone surrogate is legal in JSON and nowhere else
            return _place(_to_json(value))
        if size <= limits.INLINE_VALUE_BYTES:
            return value, size, None
        return _place(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _place(bytes(value))
    return _place(_to_json(value))


def _place(stored: str | bytes | Json) -> tuple[Stored, int, bytes | None]:
    raw, kind = _raw(stored)
    if len(raw) <= limits.INLINE_VALUE_BYTES:
        return stored, len(raw), None
    if len(raw) > limits.VALUE_BYTES:
        raise Refused(
            f"the value has {len(raw)} bytes, the limit VALUE_BYTES is {limits.VALUE_BYTES}",
            code="value_too_large",
            hint="keep it in a file and store its path",
            size_bytes=len(raw),
            limit_bytes=limits.VALUE_BYTES,
        )
    return Blob(_sha256(raw), len(raw), kind), len(raw), raw


def _raw(stored: str | bytes | Json) -> tuple[bytes, str]:
    if isinstance(stored, str):
        return stored.encode(), "s"
    if isinstance(stored, bytes):
        return stored, "b"
    return stored.text, "j"


def _to_json(value: Any) -> Json:
    try:
        try:
            text = _json_encode(value)
            same = _json_decode(text) == value
        except UnicodeEncodeError:
            text = _json().dumps(value).encode()
            same = _json().loads(text) == value
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise Refused(f"a {type(value).__name__} cannot be kept: {error}", code="bad_value", hint=_HINT) from error
    if not same:
        # Tuples, sets, NaN, non-string keys, dates: JSON would give back something else.
        raise Refused(f"this {type(value).__name__} would not come out as it went in", code="bad_value", hint=_HINT)
    return Json(text)


_HINT = "keep str, bytes or JSON: dicts with string keys, lists, finite numbers, true, false, null"


def unpack_value(stored: str | bytes | Json) -> Any:
    """Return the caller's value: a fresh copy where it is mutable."""
    if type(stored) is Json:
        return _decode_json(stored.text)
    return stored


def unpack_raw(raw: bytes, kind: str) -> Any:
    """Return the caller's value from a blob's bytes."""
    if kind == "s":
        return raw.decode()
    return raw if kind == "b" else _decode_json(raw)


def _decode_json(text: bytes) -> Any:
    try:
        return _json_decode(text)
    except msgspec.DecodeError:  # a lone surrogate escape: msgspec refuses what json accepts
        return _json().loads(text)


def value_fields(stored: Stored) -> Fact:
    """Return the optional keys of a fact that carry this value: v | j | h, n, y."""
    if type(stored) is Json:
        return {"j": stored.text}
    if type(stored) is Blob:
        return {"h": stored.sha256, "n": stored.size, "y": stored.kind}
    return {"v": stored}


def value_of(fact: Fact) -> Stored | None:
    """Return the value that `value_fields` put into a fact, None where it has none."""
    if "v" in fact:
        return cast("str | bytes", fact["v"])
    if "j" in fact:
        return Json(fact["j"])
    if "h" in fact:
        return Blob(fact["h"], fact["n"], fact["y"])
    return None


def stored_in(fact: Fact) -> Stored:
    """Return the value of a fact that must have one."""
    stored = value_of(fact)
    assert stored is not None, f"a {fact.get('f')} fact without a value"
    return stored


def utf8_bytes(text: str) -> int:
    """Return the length of text in UTF-8. Raises UnicodeEncodeError at a lone surrogate."""
    return len(text) if text.isascii() else len(text.encode())


def inline_bytes(stored: Stored | None) -> int:
    """Return the bytes this value takes in RAM: a blob takes none until it is read."""
    if type(stored) is str:
        return utf8_bytes(stored)
    if type(stored) is bytes:
        return len(stored)
    return len(stored.text) if type(stored) is Json else 0


def slot_bytes(key: str, stored: Stored) -> int:
    """Return the bytes of RAM that key and value are counted with. Twice a write, so the common case comes first."""
    if type(stored) is str and key.isascii() and stored.isascii():
        return len(key) + len(stored)
    return utf8_bytes(key) + inline_bytes(stored)


def check_blob(raw: bytes, blob: Blob) -> bytes:
    """Return raw where it is what the journal named. Raises JournalCorrupt."""
    if len(raw) != blob.size or _sha256(raw) != blob.sha256:
        raise JournalCorrupt(f"blob {blob.sha256.hex()[:12]} does not match its SHA-256", code="blob_corrupt", hint="run `pinfold doctor`")
    return raw


def check_key(key: str) -> str:
    """Return key where it can be one. Keys compare byte for byte: no normalisation. Raises Refused `bad_key`."""
    if type(key) is str:
        try:
            size = utf8_bytes(key)
        except UnicodeEncodeError as error:
            raise Refused("a key must be valid Unicode; this one has a lone surrogate", code="bad_key", hint="hash or escape it") from error
        if size <= limits.KEY_BYTES:
            return key
        raise Refused(
            f"the key has {size} bytes, the limit KEY_BYTES is {limits.KEY_BYTES}",
            code="bad_key",
            hint="use call_key(tool, arguments), which hashes long arguments",
        )
    raise Refused(f"a key is a str, not {type(key).__name__}", code="bad_key", hint="use call_key(tool, arguments) for structured keys")
