"""Values: what went in comes out, or is refused."""

import re

import pytest
from hypothesis import given, settings

from pinfold import JournalCorrupt, Refused, limits
from pinfold.state.value import (
    Blob,
    Json,
    check_blob,
    check_key,
    inline_bytes,
    pack_value,
    stored_in,
    unpack_raw,
    unpack_value,
    utf8_bytes,
    value_fields,
)
from pinfold.testing.strategies import json_values, not_values, silo_keys, silo_values

pytestmark = pytest.mark.requirement("values")


@given(silo_values())
def test_what_went_in_comes_out_with_its_type(value):
    stored, size, raw = pack_value(value)
    assert raw is None
    assert size == inline_bytes(stored)
    out = unpack_value(stored)
    assert out == value
    assert type(out) is type(value)
    assert repr(out) == repr(value)  # 1, 1.0 and True are equal, -0.0 and 0.0 too; they must not turn into one another
    assert stored_in({"f": "slot.put", **value_fields(stored)}) == stored


@pytest.mark.parametrize("kind", ["s", "b", "j"])
@settings(max_examples=20)
@given(value=json_values())
def test_a_large_value_comes_out_of_its_blob(value, kind):
    filler = "ö" * limits.INLINE_VALUE_BYTES
    large = {"s": filler, "b": filler.encode(), "j": [filler, value]}[kind]
    stored, size, raw = pack_value(large)
    assert isinstance(stored, Blob)
    assert (stored.kind, stored.size, size) == (kind, len(raw), len(raw))
    assert unpack_raw(check_blob(raw, stored), kind) == large
    assert inline_bytes(stored) == 0
    for damaged in (raw[:-1], raw[:-1] + bytes([raw[-1] ^ 1])):
        with pytest.raises(JournalCorrupt):
            check_blob(damaged, stored)


def refusal(run, kind=Refused):
    """The error that run raises: it says what to do next."""
    with pytest.raises(kind) as raised:
        run()
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize("value", [{1, 2}, (1,), float("nan"), {1: 2}, object(), 2**70 * 1j], ids=lambda value: type(value).__name__)
def test_a_refused_value_names_its_type_and_what_can_be_kept(value):
    error = refusal(lambda: pack_value(value))
    assert error.code == "bad_value"
    assert re.match(rf"(a|this) {type(value).__name__} ", error.message)
    assert "JSON" in error.hint


def test_a_value_that_is_no_json_carries_the_reason_of_the_encoder():
    error = refusal(lambda: pack_value(object()))
    assert str(error.__cause__) in error.message


def test_a_value_too_large_names_both_sizes_and_another_place_for_it():
    error = refusal(lambda: pack_value(b"x" * (limits.VALUE_BYTES + 1)))
    assert error.code == "value_too_large"
    assert error.fields == {"size_bytes": limits.VALUE_BYTES + 1, "limit_bytes": limits.VALUE_BYTES}
    assert f"{limits.VALUE_BYTES + 1} bytes" in error.message and "VALUE_BYTES" in error.message
    assert "file" in error.hint


def test_a_blob_that_is_not_what_was_named_is_named_and_sent_to_the_doctor():
    blob = pack_value(b"x" * (limits.INLINE_VALUE_BYTES + 1))[0]
    error = refusal(lambda: check_blob(b"other", blob), JournalCorrupt)
    assert error.code == "blob_corrupt"
    assert f"blob {blob.sha256.hex()[:12]} " in error.message
    assert "pinfold doctor" in error.hint


def test_a_fact_that_must_have_a_value_and_has_none_is_our_bug_and_is_named():
    with pytest.raises(AssertionError, match=r"slot\.put"):
        stored_in({"f": "slot.put", "k": "k", "i": 0})


@given(not_values())
def test_what_would_not_come_out_is_refused(value):
    with pytest.raises(Refused) as refused:
        pack_value(value)
    assert refused.value.code == "bad_value"


@pytest.mark.parametrize("size", [limits.INLINE_VALUE_BYTES, limits.INLINE_VALUE_BYTES + 1, limits.VALUE_BYTES])
def test_values_up_to_the_limit_are_kept_and_one_byte_more_is_refused(size):
    for value in ("x" * size, b"x" * size):
        stored, packed, raw = pack_value(value)
        assert packed == size
        assert (raw is not None) == isinstance(stored, Blob) == (size > limits.INLINE_VALUE_BYTES)
    if size == limits.VALUE_BYTES:
        for value in ("x" * (size + 1), b"x" * (size + 1), ["x" * size]):
            with pytest.raises(Refused) as refused:
                pack_value(value)
            assert (refused.value.code, refused.value.limit_bytes) == ("value_too_large", size)


@pytest.mark.parametrize("value", ["\udfff", {"\ud800": ["é\udc00"]}, ["\udfff" * limits.INLINE_VALUE_BYTES]], ids=["text", "names", "large"])
def test_a_lone_surrogate_is_kept_as_json_which_knows_it(value):
    stored, size, raw = pack_value(value)
    if raw is None:
        assert type(stored) is Json and size == len(stored.text)
    assert (unpack_value(stored) if raw is None else unpack_raw(raw, "j")) == value


def test_what_is_read_is_a_copy_where_it_can_change():
    stored = pack_value({"a": [1]})[0]
    unpack_value(stored)["a"].append(2)
    assert unpack_value(stored) == {"a": [1]}
    given_bytes = bytearray(b"abc")
    kept = pack_value(given_bytes)[0]
    given_bytes[0] = 0
    assert kept == b"abc"
    assert pack_value(memoryview(b"abc"))[0] == b"abc"
    assert isinstance(stored, Json)


@given(silo_keys())
def test_keys_are_kept_byte_for_byte(key):
    assert check_key(key) is key
    assert utf8_bytes(key) == len(key.encode())


@pytest.mark.parametrize("bad", [None, 1, b"k", "\udfff", "x" * (limits.KEY_BYTES + 1), "ä" * (limits.KEY_BYTES // 2 + 1)], ids=lambda bad: str(type(bad)))
def test_what_cannot_be_a_key_is_refused(bad):
    error = refusal(lambda: check_key(bad))
    assert error.code == "bad_key"
    if not isinstance(bad, str):
        assert type(bad).__name__ in error.message
    elif len(bad) > 1:
        assert f"{len(bad.encode())} bytes" in error.message and f"KEY_BYTES is {limits.KEY_BYTES}" in error.message
    if bad == "\udfff":
        assert "surrogate" in error.message and "escape" in error.hint
    else:
        assert "call_key(tool, arguments)" in error.hint


@pytest.mark.parametrize("key", ["x" * limits.KEY_BYTES, "ä" * (limits.KEY_BYTES // 2)], ids=["ascii", "umlauts"])
def test_a_key_may_have_all_the_bytes_of_the_limit(key):
    assert check_key(key) == key
