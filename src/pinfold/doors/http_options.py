"""The options of `pinfold mcp --http`, and `--new-token`: read before anything heavy is loaded."""

from __future__ import annotations

import argparse
import sys
from typing import Any

PORT = 8765


def add_http_arguments(parser: argparse.ArgumentParser, http: str = "serve over HTTP at /mcp, /graphql and /v1 instead of stdin and stdout") -> None:
    """Add the options of the HTTP door. http: what its switch does."""
    group = parser.add_argument_group("over HTTP")
    group.add_argument("--http", action="store_true", help=http)
    group.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="address to bind; anything but loopback needs tokens (default 127.0.0.1)")
    group.add_argument("--port", metavar="N", type=_port, default=PORT, help=f"port to bind, 0 for any (default {PORT})")
    group.add_argument("--token-file", metavar="FILE", help="bearer tokens with scopes and sessions; $PINFOLD_TOKEN is one token for everything")
    group.add_argument("--allow-host", metavar="NAME", action="append", default=[], help="a host name clients use for this server; may be repeated")
    group.add_argument("--allow-origin", metavar="URL", action="append", default=[], help="an origin whose pages may call; may be repeated")
    group.add_argument("--max-body", metavar="BYTES", type=_positive, default=4 << 20, help="largest request (default 4 MiB)")
    group.add_argument("--rate", metavar="N", type=_rate, default=1000.0, help="requests a second and token, 0 for no limit (default 1000)")
    group.add_argument("--new-token", metavar="NAME", help="print a new token and its entry for a token file, and end")
    group.add_argument("--scopes", metavar="A,B", default="read,write", help="of --new-token: read, write, admin (default read,write)")
    group.add_argument("--grant", metavar="SESSION", action="append", default=[], help="of --new-token: a session, a prefix as team.*, or *; may be repeated")


def print_new_token(options: Any) -> int:
    """Print a new token and its entry. Return the exit status."""
    from pinfold.doors.grants import new_token
    from pinfold.doors.stdio import encode_json
    from pinfold.errors import ConfigurationError

    try:
        token, entry = new_token(options.new_token, [scope for scope in options.scopes.split(",") if scope], options.grant)
    except ConfigurationError as error:
        print(f"pinfold mcp: {error}", file=sys.stderr)
        return 2
    print(encode_json({"tokens": [entry]}).decode())
    print(f"the token, shown this once: {token}", file=sys.stderr)
    return 0


def _port(text: str) -> int:
    number = _positive(text, 0)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 to 65535")
    return number


def _positive(text: str, least: int = 1) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is no rate: requests a second, 0 for no limit")
    return number
