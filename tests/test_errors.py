"""The error tree: stable codes, fields as attributes, the same after a journey between processes."""

import pickle

import pytest

import pinfold
from pinfold import errors
from pinfold.errors import Busy, PinfoldError, Refused, Unavailable

pytestmark = pytest.mark.requirement("errors")
TREE = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PinfoldError)]


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_and_is_drawn_in_the_docstring_and_public(kind):
    assert kind("x").code == kind.default_code
    assert kind.__name__ in errors.__doc__
    assert kind.__name__ in pinfold.__all__


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_pickling(kind):
    error = kind("what happened", code="some_code", hint="do this", key="k", limit_bytes=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.code, again.message, again.hint, again.key, again.limit_bytes) == ("some_code", "what happened", "do this", "k", 7)
    assert str(again) == "some_code: what happened | do this"
    assert again.shape() == error.shape()


def test_maybe_applied_survives_pickling_and_is_false_unless_said():
    assert pickle.loads(pickle.dumps(Unavailable("x", maybe_applied=True))).maybe_applied is True
    assert pickle.loads(pickle.dumps(Busy("x"))).maybe_applied is False


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = Refused("x", key="k").nothing
