"""One key for the same call, however its JSON was ordered (RFC 8785, JSON Canonicalization Scheme)."""

from __future__ import annotations

from pinfold.errors import Refused

try:
    from _json import encode_basestring as _quoted  # json itself is not needed, and start-up is a feature
except ImportError:
    from json.encoder import py_encode_basestring as _quoted

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is more than a command loads that is handed to a running server
    from typing import Any

READABLE_CHARS = 200
"""A longer call is keyed by the SHA-256 of its arguments; a shorter one stays readable in the log."""
_EXACT = 2**53


def call_key(tool: str, arguments: Any = None) -> str:
    """Return the key of calling tool with these JSON arguments: `tool(arguments)`, or `tool#sha256` when that is long.

    Two calls with equal arguments have one key: object members are sorted by UTF-16 code units, numbers written as
    ECMAScript writes them. Integers beyond 2**53 keep all digits (RFC 8785 would round them, and two calls would share
    a result they must not share). Raises Refused `bad_arguments`.
    """
    text = canonical_json({} if arguments is None else arguments)
    if len(tool) + len(text) <= READABLE_CHARS:
        return f"{tool}({text})"
    from hashlib import sha256

    return f"{tool}#{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def canonical_json(value: Any) -> str:
    """Return RFC 8785 text. Raises Refused `bad_arguments` for what is not JSON."""
    parts: list[str] = []
    try:
        _write(value, parts)
    except RecursionError as error:
        raise _not_json("they are nested too deeply or contain themselves") from error
    return "".join(parts)


def _write(value: Any, out: list[str]) -> None:
    kind = type(value)
    if kind is str:
        out.append(_string(value))
    elif value is None or kind is bool:
        out.append("null" if value is None else "true" if value else "false")
    elif kind is int:
        out.append(_integer(value))
    elif kind is float:
        out.append(_number(value))
    elif isinstance(value, dict):
        _write_object(value, out)
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for place, item in enumerate(value):
            out.append("," if place else "")
            _write(item, out)
        out.append("]")
    elif isinstance(value, (str, int, float)):  # enums and other subclasses: by their plain value
        base = next(base for base in (str, int, float) if isinstance(value, base))
        _write(str.__str__(value) if base is str else base(value), out)  # str() of an enum is its name, not its value
    else:
        raise _not_json(f"a {kind.__module__}.{kind.__qualname__} is not JSON")


def _write_object(value: dict[Any, Any], out: list[str]) -> None:
    for name in value:
        if not isinstance(name, str):
            raise _not_json(f"the member name {name!r} is not a string")
    out.append("{")
    for place, name in enumerate(sorted(value, key=lambda n: n.encode("utf-16-be", "surrogatepass"))):
        out.append("," if place else "")
        out.append(_string(str.__str__(name)))
        out.append(":")
        _write(value[name], out)
    out.append("}")


def _string(value: str) -> str:
    """Return a string as ECMAScript's well-formed JSON.stringify: what has no UTF-8 is escaped, nothing else beyond need."""
    text = _quoted(value)
    if text.isascii():
        return text
    return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in text)


def _integer(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # more digits than Python converts
        raise _not_json("an integer has thousands of digits") from error


def _number(value: float) -> str:
    """Return a float as ECMAScript's Number::toString: shortest digits, exponent from 1e21 and below 1e-6."""
    if value != value or value in (float("inf"), float("-inf")):
        raise _not_json(f"{value} is not a JSON number")
    if value == int(value) and abs(value) < _EXACT:
        return str(int(value))  # 1.0 and 1 are the same call; -0.0 is 0
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    leading = len(whole + fraction) - len((whole + fraction).lstrip("0"))
    digits = (whole + fraction)[leading:]
    point = len(whole) + int(exponent or 0) - leading
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def _not_json(reason: str) -> Refused:
    return Refused(
        f"these arguments cannot make a key: {reason}",
        code="bad_arguments",
        hint="pass JSON values (str, numbers, bool, null, lists, string-keyed dicts), or give a key of your own",
    )
