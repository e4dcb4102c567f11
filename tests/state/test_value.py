"""Values: what went in comes out, or is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold import JournalCorrupt, Refused, limits
from pinfold.state.value import (
    Blob,
    Json,
    check_blob,
    check_key,
    inline_bytes,
    key_bytes,
    pack_value,
    stored_in,
    unpack_raw,
    unpack_value,
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


@given(json_values(), st.sampled_from(["s", "b", "j"]))
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
    assert key_bytes(key) == len(key.encode())


@pytest.mark.parametrize("bad", [None, 1, b"k", "\udfff", "x" * (limits.KEY_BYTES + 1), "ä" * (limits.KEY_BYTES // 2 + 1)], ids=lambda bad: str(type(bad)))
def test_what_cannot_be_a_key_is_refused(bad):
    with pytest.raises(Refused) as refused:
        check_key(bad)
    assert refused.value.code == "bad_key"
