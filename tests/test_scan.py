"""Secrets in what is written: refused or marked, through the operations table and so through every door."""

from __future__ import annotations

from typing import Any

import pytest

from pinfold import Memory
from pinfold.errors import ConfigurationError, Refused
from pinfold.operations import BY_NAME, Call, run
from pinfold.scan import Scanner, find

SECRETS = [
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a1B2" * 9,
    "xoxb-" + "1234567890-abcdef",
    "sk_live_" + "0123456789abcdef",
    "eyJhbGciOiJI" + ".eyJzdWIiOiIx" + ".c2lnbmF0dXJl",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
]
PLAIN = ["nothing here", "a" * 64, "0123456789abcdef" * 4, "sk-short", "git commit 9f3c2a", "AKIA is a prefix"]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_has_its_issuer_s_form_is_found(secret: str) -> None:
    assert [(start, end) for start, end, _ in find(f"a {secret} b")] == [(2, 2 + len(secret))]


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_looks_random_is_left_alone(text: str) -> None:
    assert find(text) == []


def ask(memory: Memory, row: str, **arguments: Any) -> Any:
    return run(BY_NAME[row], Call(memory, "work"), arguments)


@pytest.mark.parametrize("mode", ["refuse", "redact"])
@pytest.mark.requirement("secrets")
def test_every_way_to_write_is_looked_through(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_SECRETS", mode)
    secret = SECRETS[0]
    query = f'mutation{{set(key:"g", value:{{deep:["{secret}"]}}){{status}}}}'
    with Memory("memory://") as memory:
        writes: list[tuple[str, dict[str, Any]]] = [
            ("set", {"key": "k", "value": {"deep": [f"x {secret} y"]}}),
            ("mutate", {"text": f"+ TSK [NEW] ; goal={secret}"}),
            ("graphql", {"query": query}),
        ]
        for row, arguments in writes:
            if mode == "refuse" and row != "graphql":
                with pytest.raises(Refused) as refused:
                    ask(memory, row, **arguments)
                assert refused.value.code == "secret_found" and secret not in str(refused.value)
            else:
                told = ask(memory, row, **arguments)
                assert ("secret_found" in str(told)) == (mode == "refuse")
        session = memory.session("work")
        if mode == "redact":
            assert session.peek("k").value == {"deep": ["x [redacted AWS key id] y"]}  # type: ignore[union-attr]
            assert "[redacted AWS key id]" in session.get("TSK1").items[0].line
            assert session.peek("g").value == {"deep": ["[redacted AWS key id]"]}  # type: ignore[union-attr]
        else:
            assert session.status().seq == 0
        assert ask(memory, "peek", key=secret) == {"hit": False}


def test_a_hook_s_finds_may_overlap_and_come_in_any_order() -> None:
    found = [(8, 12, "b"), (2, 6, "a"), (4, 10, "c")]
    assert Scanner("redact", lambda text: found).checked({"value": "0123456789abcdef"}) == {"value": "01[redacted a]cdef"}


def test_the_patterns_of_detect_secrets_come_beside_these(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("detect_secrets", reason="the extra `secrets`")
    monkeypatch.setenv("PINFOLD_SECRETS", "redact")
    monkeypatch.setenv("PINFOLD_SECRETS_HOOK", "pinfold.scan:with_detect_secrets")
    more = ["SG." + "a1B2" * 5 + "cd." + "a1B2" * 10 + "xyz", "sq0csp-" + "a1B2" * 10 + "xyz", "0123456789abcdef" * 2 + "-us12"]
    with Memory("memory://") as memory:
        for secret in (*SECRETS, *more):
            ask(memory, "set", key="k", value=f"first {secret} last")
            value = memory.session("work").peek("k").value  # type: ignore[union-attr]
            assert value.startswith("first [redacted ") and value.endswith("] last") and not any(part in value for part in secret.split("\n"))
        for plain in PLAIN:
            ask(memory, "set", key="k", value=plain)
            assert memory.session("work").peek("k").value == plain  # type: ignore[union-attr]


def only_xyzzy(text: str) -> list[tuple[int, int, str]]:
    return [(text.index("xyzzy"), text.index("xyzzy") + 5, "magic")] if "xyzzy" in text else []


def test_a_hook_takes_the_place_of_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_SECRETS", "redact")
    monkeypatch.setenv("PINFOLD_SECRETS_HOOK", f"{__name__}:only_xyzzy")
    with Memory("memory://") as memory:
        ask(memory, "set", key="k", value=f"say xyzzy and {SECRETS[0]}")
        assert memory.session("work").peek("k").value == f"say [redacted magic] and {SECRETS[0]}"  # type: ignore[union-attr]
        monkeypatch.setenv("PINFOLD_SECRETS", "sometimes")
        monkeypatch.delenv("PINFOLD_SECRETS_HOOK")
        with pytest.raises(ConfigurationError, match="refuse or redact"):
            ask(memory, "set", key="k", value="v")
