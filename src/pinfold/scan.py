"""A hook for secrets in what is written through any door: refuse the call, or put a mark in their place.

Off unless $PINFOLD_SECRETS is `refuse` or `redact`. The patterns are few and sure: forms that their issuers gave a prefix, and
private keys; a word that only looks random is left alone. $PINFOLD_SECRETS_HOOK names a function of your own, `module:name`,
that gets a text and returns the (start, end, what) of each secret in it; it then takes the place of these patterns. One is
here: `pinfold.scan:with_detect_secrets` knows those of detect-secrets too (the extra `secrets`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from pinfold import caller
from pinfold.errors import ConfigurationError, Refused

MODE = "PINFOLD_SECRETS"
HOOK = "PINFOLD_SECRETS_HOOK"
Find = Callable[[str], Iterable[tuple[int, int, str]]]

PATTERNS = {
    "private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----[\s\S]*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\Z)",
    "AWS key id": r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "Stripe key": r"\b(?:sk|rk)_live_[A-Za-z0-9]{16,}\b",
    "Google API key": r"\bAIza[A-Za-z0-9_-]{35}\b",
    "API key": r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "PyPI token": r"\bpypi-[A-Za-z0-9_-]{50,}",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "pinfold token": r"\bpinfold_[A-Za-z0-9_-]{43}",
}
_any = re.compile("|".join(f"(?P<p{place}>{pattern})" for place, pattern in enumerate(PATTERNS.values())))
_names = {f"p{place}": name for place, name in enumerate(PATTERNS)}
DEPTH = 64
NAMES = frozenset(("key", "keys", "prefix", "promise_id", "ids", "id", "request_id"))
"""Arguments that name things: a mark there would name another."""


def find(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, what) of each secret the patterns know."""
    return [(found.start(), found.end(), _names[found.lastgroup or "p0"]) for found in _any.finditer(text)]


def with_detect_secrets(text: str) -> list[tuple[int, int, str]]:
    """Return what these patterns and those of detect-secrets know; its guesses, by entropy and by words, are left out."""
    theirs = ((found.start(), found.end(), what) for what, pattern in _of_detect_secrets() for found in pattern.finditer(text))
    return [*find(text), *theirs]


@functools.cache
def _of_detect_secrets() -> list[tuple[str, re.Pattern[str]]]:
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    kinds = get_mapping_from_secret_type_to_class().items()
    return [(what, pattern) for what, kind in kinds if issubclass(kind, RegexBasedDetector) for pattern in kind().denylist]


class Scanner:
    """What is done with secrets. mode: "refuse" or "redact"."""

    def __init__(self, mode: str, find: Find = find) -> None:
        if mode not in ("refuse", "redact"):
            raise ConfigurationError(f"${MODE} is {mode!r}", code="bad_secrets_mode", hint="refuse or redact; unset it to store everything")
        self.mode = mode
        self._find = find

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments, with a mark for each secret in their texts. Raises Refused `secret_found` in the mode refuse."""
        return {name: value if self.mode == "redact" and name in NAMES else self._in(value, name, 0) for name, value in arguments.items()}

    def _in(self, value: Any, where: str, depth: int) -> Any:
        if isinstance(value, str):
            return self._in_text(value, where)
        if depth > DEPTH:
            raise Refused(f"{where} is nested too deeply to be looked through", code="bad_value", hint="store it as text")
        if isinstance(value, dict):
            return {self._in(key, where, depth): self._in(item, where, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._in(item, where, depth + 1) for item in value]
        return value

    def _in_text(self, text: str, where: str) -> str:
        parts: list[str] = []
        last = 0
        for start, end, what in sorted(self._find(text)):
            if self.mode == "refuse":
                hint = "store where it can be found instead; the operator may choose $PINFOLD_SECRETS=redact"
                raise Refused(f"{where} holds what looks like a secret: {what}", code="secret_found", hint=hint, what=what)
            if start >= last:
                parts += [text[last:start], f"[redacted {what}]"]
            last = max(last, end)
        return text if not parts else "".join((*parts, text[last:]))


def scanner_of_environment() -> Scanner:
    """Return the scanner the environment asks for, where it asks for one. Raises ConfigurationError."""
    environ = caller.environ()
    return _scanner(environ.get(MODE, ""), environ.get(HOOK, ""))


@functools.cache
def _scanner(mode: str, named: str) -> Scanner:
    if not named:
        return Scanner(mode)
    from importlib import import_module

    module, _, name = named.partition(":")
    try:
        return Scanner(mode, getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"${HOOK}={named!r} cannot be loaded: {error}", code="bad_secrets_hook", hint="module:function") from error
