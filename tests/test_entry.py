"""Entries: what is decoded is what was encoded, and damage is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold import JournalCorrupt, NewerFormat
from pinfold.entry import Entry, Record, decode_entry, encode_entry, hash_of
from pinfold.testing.strategies import entries

pytestmark = pytest.mark.requirement("entry-round-trip")


@given(entries())
def test_decode_gives_back_what_was_encoded(entry):
    record = encode_entry(entry)
    assert record.seq == entry.seq
    assert decode_entry(record) == entry
    assert encode_entry(decode_entry(record)) == record


@given(entries(), st.data())
def test_any_flipped_bit_and_any_cut_is_seen(entry, data):
    record = encode_entry(entry)
    at = data.draw(st.integers(0, len(record.body) - 1))
    flipped = record.body[:at] + bytes([record.body[at] ^ (1 << data.draw(st.integers(0, 7)))]) + record.body[at + 1 :]
    for body in (flipped, record.body[:at]):
        with pytest.raises(JournalCorrupt):
            decode_entry(Record(record.seq, record.hash, body))


def test_another_format_a_wrong_seq_and_garbage_are_named():
    record = encode_entry(Entry(3, b"", 0, None, None, []))
    for body, error in ((b"\x02" + record.body[1:], NewerFormat), (b"", NewerFormat), (record.body[:1] + b"\xc1", JournalCorrupt)):
        with pytest.raises(error) as raised:
            decode_entry(Record(3, hash_of(body), body))
        assert raised.value.seq == 3
    with pytest.raises(JournalCorrupt):
        decode_entry(Record(4, record.hash, record.body))
