"""One key for the same call, whatever the order of its JSON: RFC 8785 with exact integers."""

import enum
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold import Refused, call_key
from pinfold.call_key import canonical_json
from pinfold.state.value import check_key
from pinfold.testing.strategies import json_values

pytestmark = pytest.mark.requirement("call-key")


class Colour(str, enum.Enum):  # noqa: UP042
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"), ("8000000000000000", "0"), ("0000000000000001", "5e-324"), ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"), ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"), ("c340000000000000", "-9007199254740992"), ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"), ("44b52d02c7e14af6", "1e+23"), ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"), ("444b1ae4d6e2ef4f", "999999999999999900000"), ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"), ("3eb0c6f7a0b5ed8d", "0.000001"), ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"), ("41b3de4355555555", "333333333.3333333"), ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"), ("becbf647612f3696", "-0.0000033333333333333333"), ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)  # fmt: skip
def test_floats_are_written_as_appendix_b_of_the_rfc_has_them(bits, text):
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == text


def test_the_sample_of_section_3_2_is_written_as_the_rfc_has_it():
    sample = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA' + r"'" + r'B\"\\\\\"/"}'
    assert canonical_json(sample) == expected


def test_members_are_sorted_by_utf_16_code_units():
    sample = {"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew", "1": "One", "\U0001f600": "Emoji", "\u0080": "Control", "\u00f6": "o umlaut"}
    assert list(json.loads(canonical_json(sample)).values()) == ["Carriage Return", "One", "Control", "o umlaut", "Euro Sign", "Emoji", "Hebrew"]


@given(json_values())
def test_canonical_json_reads_back_as_the_same_value_and_is_stable(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
    text.encode()  # always valid UTF-8


@given(st.dictionaries(st.text(max_size=6), json_values(), max_size=6), st.randoms())
def test_the_order_of_members_makes_no_difference(arguments, dice):
    shuffled = list(arguments.items())
    dice.shuffle(shuffled)
    assert call_key("tool", dict(shuffled)) == call_key("tool", arguments)
    check_key(call_key("tool", arguments))


@given(json_values(), json_values())
def test_different_calls_have_different_keys(one, other):
    if canonical_json(one) != canonical_json(other):
        assert call_key("t", [one]) != call_key("t", [other])


def test_integers_keep_all_digits_and_a_whole_float_is_its_integer():
    assert call_key("t", 2**53) != call_key("t", 2**53 + 1)
    assert call_key("t", 1.0) == call_key("t", 1)
    assert call_key("t", True) != call_key("t", 1)


def test_short_calls_stay_readable_and_long_ones_are_hashed():
    assert call_key("grep", {"pattern": "x", "path": "."}) == 'grep({"path":".","pattern":"x"})'
    assert call_key("now") == call_key("now", {}) == "now({})"
    long = call_key("read", {"text": "x" * 500})
    assert long.startswith("read#")
    assert len(long) == len("read#") + 40


def test_enums_count_by_their_value_and_lone_surrogates_are_escaped():
    assert canonical_json([Colour.RED, Size.BIG, {Colour.RED: 1}]) == '["red",3,{"red":1}]'
    assert canonical_json("\ud800 and 😀") == '"\\ud800 and 😀"'


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), b"bytes", object(), {1: 2}, {1, 2}, 10**5000], ids=lambda bad: type(bad).__name__)
def test_what_is_no_json_makes_no_key(bad):
    for arguments in (bad, [bad], {"deep": [bad]}):
        with pytest.raises(Refused) as refused:
            call_key("t", arguments)
        assert refused.value.code == "bad_arguments"


def test_what_contains_itself_makes_no_key():
    loop: list = []
    loop.append(loop)
    with pytest.raises(Refused) as refused:
        call_key("t", loop)
    assert refused.value.code == "bad_arguments"
