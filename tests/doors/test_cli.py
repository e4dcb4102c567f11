"""The command line in this process: verbs, flags, values, words and exit statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_runner import run, twice

from pinfold import Memory, call_key
from pinfold.doors.arguments import duration, flag_of
from pinfold.doors.cli import OWN_VERBS
from pinfold.operations import TABLE

own_store = twice()


# --- values come out as they went in ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"plain",
        "wörld ✓ 日本".encode(),
        b"with\nlines\n",
        b"\x00\x01\xff\xfe",
        b"\xed\xa0\x80",
        b"x" * 1_000_000,
        bytes(range(256)) * 400,
        b"\xef\xbb\xbfbom",
    ],
    ids=["empty", "ascii", "utf-8", "lines", "binary", "surrogate-bytes", "1MB", "100kB-binary", "bom"],
)
def test_a_value_from_standard_input_comes_out_byte_for_byte(value: bytes) -> None:
    assert run("set", "k", "-", stdin=value).status == 0
    assert run("peek", "k") == (0, value, "")


def test_a_value_from_a_file_comes_out_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"\x00\r\n\xff")
    assert run("set", "k", "--file", str(tmp_path / "value")).status == 0
    assert run("peek", "k").out == b"\x00\r\n\xff"


def test_bytes_that_are_no_utf8_are_kept_from_the_command_line_too() -> None:
    word = b"caf\xe9".decode("utf-8", "surrogateescape")
    run("set", "k", word)
    assert run("peek", "k").out == b"caf\xe9"
    assert run("peek", "k", "--json").json["value"] == {"base64": "Y2Fm6Q=="}


def test_text_is_text_for_python_and_bytes_are_bytes(tmp_path: Path) -> None:
    run("set", "text", "héllo")
    run("set", "bytes", "-", stdin=b"\xff")
    run("set", "json", '{"b": [1, 2.5], "a": null}', "--json-value")
    with Memory() as memory:
        session = memory.session("test")
        assert [session.peek(key).value for key in ("text", "bytes", "json")] == ["héllo", b"\xff", {"b": [1, 2.5], "a": None}]  # type: ignore[union-attr]


def test_json_values_come_out_as_json_and_are_not_mistaken_for_bytes() -> None:
    run("set", "--json-value", "k", '{"base64": "eA=="}')
    assert run("peek", "k").out == b'{"base64":"eA=="}'
    assert run("peek", "k", "--json").json["value"] == {"base64": "eA=="}


def test_json_with_a_lone_surrogate_survives() -> None:
    run("set", "k", '"\\ud800"', "--json-value")
    assert run("peek", "k").out == b'"\\ud800"'
    assert run("peek", "k", "--json").json["value"] == "\ud800"


def test_a_terminal_gets_the_line_end_that_a_pipe_does_not() -> None:
    run("set", "k", "value")
    assert run("peek", "k", terminal=True).out == b"value\n"
    assert run("peek", "k").out == b"value"


def test_a_dash_after_two_dashes_is_a_dash_and_values_may_look_like_flags() -> None:
    run("set", "k", "--", "-")
    assert run("peek", "k").out == b"-"
    run("set", "k", "--ttl", "2h", "--", "--json")
    assert run("peek", "k").out == b"--json"
    run("set", "k", "-5")
    assert run("peek", "k").out == b"-5"


def test_a_value_over_the_limit_is_refused_by_the_limits_name() -> None:
    ran = run("set", "k", "-", stdin=b"x" * (16 * 1024 * 1024 + 1))
    assert ran.status == 3 and "value_too_large" in ran.err and "VALUE_BYTES" in ran.err
    assert run("peek", "k", "--fail-on-miss").status == 1


def test_a_long_value_can_be_read_in_parts() -> None:
    run("set", "k", "ä" * 10)
    first = run("peek", "k", "--limit-bytes", "5", "--json").json
    assert first["value"] == "ää" and first["next_offset"] == 4 and first["size_bytes"] == 20
    assert run("peek", "k", "--offset", "16").text == "ää"


def test_keys_compare_byte_for_byte_and_may_be_any_text() -> None:
    for key in ("é", "e\u0301", "two words", "line\nbreak", "日本"):
        run("set", key, key)
    assert run("keys", "--json").json["keys"] == ["é", "e\u0301", "two words", "line\nbreak", "日本"]
    assert run("peek", "e\u0301").text == "e\u0301"


def test_a_key_that_is_no_utf8_is_refused() -> None:
    ran = run("set", b"\xff".decode("utf-8", "surrogateescape"), "v")
    assert (ran.status, ran.out) == (3, b"") and "bad_key" in ran.err


# --- silo and promises --------------------------------------------------------------------------------------------


def test_a_miss_prints_nothing_on_stdout_and_fails_only_when_asked_to() -> None:
    assert run("peek", "k") == (0, b"", "miss: k\n")
    assert run("peek", "k", "--fail-on-miss").status == 1
    assert run("peek", "k", "--json", "--fail-on-miss") == (1, b'{"hit":false}\n', "")


def test_looking_writes_nothing() -> None:
    run("peek", "k")
    run("keys")
    assert run("session", "list", "--json").json == {"sessions": [], "total": 0}


def test_a_look_that_became_a_claim_says_whose_work_it_is() -> None:
    ran = run("peek", "k", "--claim")
    assert ran.out == b"" and "k is yours to do: token=1" in ran.err
    assert "k is being worked on" in run("peek", "k", "--claim").err


def test_a_claim_is_won_once_and_settled_with_its_token() -> None:
    assert run("claim", "k", "--lease", "5m").text == "claimed k token=1 lease_left=300s\n"
    assert run("claim", "k", "--json").json["status"] == "pending"
    pending = run("peek", "k")
    assert pending.out == b"" and pending.err.startswith("pending: k is being worked on")
    assert run("renew", "k", "--token", "1", "--lease", "10m").text == "renewed k lease_left=600s\n"
    refused = run("resolve", "k", "late", "--token", "7")
    assert refused.status == 3 and "stale_token" in refused.err
    assert run("resolve", "k", "done", "--token", "1").text == "resolved\n"
    assert run("claim", "k").out == b"done"
    assert run("wait", "k").out == b"done"
    assert run("resolve", "k").out == b"done"


def test_a_rejection_is_told_and_not_kept() -> None:
    run("claim", "k")
    assert run("resolve", "k", "--error", "no luck", "--token", "1").text == "rejected: no luck\n"
    waited = run("wait", "k", "--timeout", "1s", "--fail-on-miss")
    assert (waited.status, waited.out) == (1, b"") and "no luck" in waited.err
    assert run("claim", "k", "--json").json["token"] == 2


def test_a_key_can_be_named_by_tool_and_arguments_in_any_order() -> None:
    run("set", "--tool", "search", "--arguments", '{"q": "x", "n": 1}', "found")
    assert run("peek", "--tool", "search", "--arguments", '{"n":1,"q":"x"}').out == b"found"
    assert run("peek", call_key("search", {"q": "x", "n": 1})).out == b"found"


def test_keys_drop_and_flush() -> None:
    for key in ("a:1", "a:2", "b"):
        run("set", key, "v")
    assert run("keys", "a:").text == "a:1\na:2\n"
    assert run("drop", "--prefix", "a:", "--dry-run").text == "would drop a:1\nwould drop a:2\n"
    assert run("drop", "a:1", "b", "nothing").text == "dropped a:1\ndropped b\n"
    assert run("flush").text == "flushed 1\n"
    assert run("keys", "--fail-on-miss") == (1, b"", "nothing\n")


def test_the_log_tells_who_changed_what() -> None:
    run("set", "k", "v", "--actor", "ann")
    run("set", "k", "w", "--actor", "bob")
    lines = run("log").text.splitlines()
    assert " ann  " in lines[0] and lines[1].endswith("bob  set k [0] 1 bytes")
    run("set", "k", "x", "--actor", "bob/agent")
    run("set", "k", "y", "--actor", "bobby")
    for flag in ("--by", "--actor"):
        assert [entry["seq"] for entry in run("log", flag, "bob", "--json").json["entries"]] == [2, 3]


# --- sessions -----------------------------------------------------------------------------------------------------


def test_session_open_without_a_name_mints_one_and_says_how_to_use_it() -> None:
    ran = run("session", "open")
    name = ran.text.split()[1]
    assert name.startswith("s_") and len(name) == 10 and ran.text.startswith("initialized ")
    assert ran.err == f"export PINFOLD_SESSION={name}\n"
    minted = run("session", "open", "--json").json
    assert minted["export"] == f"export PINFOLD_SESSION={minted['session_id']}"


def test_a_session_is_opened_resumed_closed_and_restored_by_name() -> None:
    assert run("session", "open", "a", "--silo-size", "2", "--ttl", "2h").text == "initialized a seq=1 silo_size=2 ttl=7200s\n"
    run("set", "k", "v", "--session", "a")
    assert run("session", "resume", "a").text.startswith("resumed a ")
    assert run("status", "--session", "a", "--json").json["short_term"]["slots"] == 1
    assert run("session", "current", "--session", "a").text.startswith("session   a ")
    assert [row["session_id"] for row in run("session", "list", "--json").json["sessions"]] == ["a"]
    assert run("session", "close", "a").text == "ended a\n"
    assert run("session", "list", "--fail-on-miss").status == 1
    assert run("session", "list", "--expired").text.startswith("a  seq=")
    assert run("session", "restore", "a", "--as", "b").text.startswith("restored b ")
    assert run("peek", "k", "--session", "b").out == b"v"


def test_flags_may_stand_before_the_verb_and_inside_a_group() -> None:
    run("--session", "a", "set", "k", "v")
    assert run("--json", "--session", "a", "peek", "k").json["value"] == "v"
    assert run("session", "--json", "list").json["total"] == 1


# --- durations ----------------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("60m", 3600), ("2h", 7200), ("1d", 86400), ("1.5h", 5400), ("500ms", 0.5)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_a_bare_duration_is_refused_with_both_readings() -> None:
    ran = run("set", "k", "v", "--ttl", "60")
    assert ran.status == 2 and "60s" in ran.err and "60m" in ran.err


@pytest.mark.parametrize("text", ["", "s", "m5", "1w", "-1s", "1h30m", "infs", "nans"])
def test_what_is_no_duration_is_a_usage_error(text: str) -> None:
    assert run("set", "k", "v", f"--ttl={text}").status == 2


def test_a_ttl_ends_the_value() -> None:
    run("set", "k", "v", "--ttl", "1ms")
    assert run("peek", "k", "--wait", "1ms", "--json").json == {"hit": False}


# --- usage and errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["peek"], "KEY is missing"),
        (["set", "k"], "VALUE is missing"),
        (["set", "k", "two", "words"], "one word too many"),
        (["peek", "k", "--nonsense"], "there is no flag --nonsense"),
        (["peek", "k", "--sesion", "s"], "there is no flag --sesion; did you mean --session?"),
        (["peek", "k", "--jsn=1"], "did you mean --json?"),
        (["once", "", "--", "make"], "KEY is empty"),
        (["peek", "k", "--limit-bytes", "many"], "not a whole number"),
        (["set", "k", "{", "--json-value"], "is not JSON"),
        (["peek", "--tool", "t", "--arguments", "{"], "not JSON"),
        (["peek", "--tool", "t", "--arguments", "[1]"], "must be an object"),
        (["set", "k", "--file", "/no/such/file"], "cannot be read"),
        (["pek", "k"], "did you mean peek"),
        (["session"], "needs one of: open"),
        (["session", "opne"], "did you mean open?"),
        (["query", "pinmap"], "did you mean pin-map?"),
        (["session", "resume"], "name the session"),
        (["renew", "k"], "--token is missing"),
        (["drop"], "nothing was named"),
        (["peek", "k", "--store", "nonsense"], "bad_url"),
        (["once", "k"], "the command is missing"),
        (["once", "k", "make", "all"], "'make all' must stand after `--`"),
        (["once", "--", "make"], "one KEY"),
        (["completion", "tcsh"], "name one shell"),
        (["where", "there"], "one word too many"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_said(argv: list[str], said: str) -> None:
    ran = run(*argv)
    assert said in ran.err
    assert ran.status == (122 if argv[0] == "once" else 2)
    assert ran.out == b""


def test_errors_are_json_documents_when_asked_for() -> None:
    ran = run("peek", "--json")
    assert ran.status == 2 and ran.json["error"]["code"] == "usage" and ran.err == ""
    run("claim", "k")
    refused = run("resolve", "k", "v", "--json")
    assert refused.status == 3 and refused.json["error"]["code"] == "token_required" and refused.json["error"]["hint"]


def test_a_store_that_is_no_store_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"not a database at all, but long enough to look like one" * 20)
    ran = run("set", "k", "v", "--store", f"sqlite:///{tmp_path}/notes")
    assert ran.status == 5 and "journal_corrupt" in ran.err
    assert (tmp_path / "notes").read_bytes().startswith(b"not a database")


def test_a_read_only_store_is_unavailable_for_writing(tmp_path: Path) -> None:
    run("set", "k", "v")
    ran = run("set", "k", "w", "--store", f"sqlite:///{tmp_path}/store.db?mode=ro")
    assert ran.status == 4 and "read_only" in ran.err


@pytest.mark.alone
def test_a_bug_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("pinfold.doors.cli.open_memory", broken)
    ran = run("peek", "k")
    assert ran.status == 5 and "internal: ZeroDivisionError: oh" in ran.err and "Traceback" in ran.err


@pytest.mark.alone
def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("pinfold.doors.cli.open_memory", interrupted)
    assert run("peek", "k") == (130, b"", "")


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_verb_in_groups(argv: tuple[str, ...]) -> None:
    ran = run(*argv)
    listed = [line[2:18].strip() for line in ran.text.splitlines() if line.startswith("  ")]
    assert ran.status == 0 and ran.err == ""
    assert {*OWN_VERBS, *(row.cli[0] for row in TABLE if row.cli)} <= set(listed)
    assert max(map(len, ran.text.splitlines())) <= 110


@pytest.mark.alone
@pytest.mark.parametrize("row", [row for row in TABLE if row.cli], ids=lambda row: row.name)
def test_the_help_of_a_verb_names_its_flags_and_every_other_verb_of_the_row(row: Any) -> None:
    for verb in row.cli:
        ran = run(*verb.split(), "--help")
        assert ran.status == 0 and ran.text.startswith(f"usage: pinfold {verb}")
        assert all(flag_of(param) in ran.text for param in row.params)
        assert run("help", *verb.split()).text == ran.text


@pytest.mark.alone
@pytest.mark.parametrize("verb", [verb for verb in OWN_VERBS if verb != "mcp"])
def test_every_own_verb_has_help(verb: str) -> None:
    ran = run(verb, "--help")
    assert ran.status == 0 and ran.text.startswith(f"usage: pinfold {verb}")


@pytest.mark.alone
def test_every_row_says_something_short_about_itself_in_one_manner_and_once() -> None:
    from pinfold.doors.help import summary_of

    for row in TABLE:
        if row.cli:
            assert 0 < len(summary_of(row)) <= 90 and not summary_of(row)[0].isupper(), row.name
            told = run(*row.cli[0].split(), "--help").text.lower()
            assert told.count(f"\n{summary_of(row).lower()}") == 1, told


@pytest.mark.parametrize("row", [row for row in TABLE if row.cli and any(p.name == "key" and p.positional for p in row.params)], ids=lambda row: row.name)
def test_no_verb_takes_an_empty_key(row: Any) -> None:
    ran = run(*row.cli[0].split(), "", *["1" for p in row.params if p.positional][1:])
    assert ran.status == 2 and "KEY is empty" in ran.err
    assert run("keys").text == ""


# --- where, stat, compact, version, guide -------------------------------------------------------------------------


@pytest.mark.alone
def test_where_prints_store_and_session_and_makes_nothing(tmp_path: Path) -> None:
    where = run("where", "--json").json
    assert where == {
        "store": f"sqlite:///{tmp_path}/store.db",
        "store_from": "$PINFOLD_STORE",
        "path": f"{tmp_path}/store.db",
        "size_bytes": None,
        "session_id": "test",
        "session_from": "$PINFOLD_SESSION",
    }
    assert "not there yet" in run("where").text
    assert list(tmp_path.iterdir()) == []
    run("set", "k", "v")
    assert run("where", "--json").json["size_bytes"] > 0


def test_stat_and_compact_tell_sizes_and_snapshots() -> None:
    run("set", "k", "v")
    assert run("compact").text == "compacted test\n"
    row = run("stat", "--json").json["sessions"][0]
    assert row["session_id"] == "test" and row["entries"] == 1 and row["snapshot_bytes"] > 0
    assert "test  seq=1 entries=1" in run("stat").text
    assert run("peek", "k").out == b"v"


@pytest.mark.alone
def test_version_is_the_packages() -> None:
    import pinfold

    assert run("version").text == run("--version").text == f"pinfold {pinfold.__version__}\n"
    assert run("version", "--json").json["pinfold"] == pinfold.__version__


def test_the_guide_fits_450_tokens_and_its_commands_work() -> None:
    bpe_openai = pytest.importorskip("bpe_openai", reason="the extra `tokens` counts them")
    guide = run("guide").text
    assert len(bpe_openai.get_encoding("o200k_base").encode(guide)) <= 450
    assert json.loads(run("guide", "--json").out)["guide"] == guide
    token = run("claim", "KEY", "--wait", "60s", "--json").json["token"]
    assert run("resolve", "KEY", "RESULT", "--token", str(token)).status == 0
    assert run("peek", "KEY").out == b"RESULT"


def test_the_lines_of_the_guide_are_lines() -> None:
    guide = run("guide").text
    shown = re.findall(r"^  ((?:[A-Z]+|E1) \[.*)$", guide, re.MULTILINE)
    assert len(shown) == 2
    assert run("mutate", "\n".join(["+ MOD [MOD1]", *(f"+ {line}" for line in shown)])).status == 0
    document = guide.partition("<<'END'\n")[2].partition("  END")[0]
    done = run("mutate", "-", "--json", stdin=document.encode()).json
    assert done["minted"] == {"c": "CLM1", "#1": "E2"} and done["dropped"] == ["E1"]
    assert run("read", "list", "TSK", "--where", "status=open").out == b""
    assert "status=done ; tries=1" in run("query", "pin-map", "TSK1", "--budget-tokens", "800").text
    loose = run("guide", "--loose").text
    assert loose.startswith("- ") and len(loose.splitlines()) == 10 and run("guide", "--loose", "--json").json["guide"] == loose


@pytest.mark.alone
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pinfold.doors.mcp", None)
    ran = run("mcp")
    assert ran.status == 2 and "pip install 'pinfold[mcp]'" in ran.err


@pytest.mark.alone
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_verb_and_flag(shell: str) -> None:
    script = run("completion", shell).text
    words = {word for row in TABLE for verb in row.cli for word in verb.split()} | set(OWN_VERBS)
    assert all(word in script for word in words)
    assert all(flag_of(param).lstrip("-") in script for row in TABLE if row.cli for param in row.params)


def test_a_command_says_that_looks_of_commands_are_not_counted_where_there_are_none(tmp_path: Path) -> None:
    run("set", "k", "v")
    run("peek", "k")
    assert "0 hits, 0 misses  (those of single commands are not counted)" in run("status").text


def test_a_store_that_is_a_folder_is_called_one(tmp_path: Path) -> None:
    ran = run("peek", "k", "--store", f"sqlite:///{tmp_path}")
    assert ran.status == 2 and "is a folder" in ran.err and "name a file in it" in ran.err


@pytest.mark.parametrize("ttl", ["0s", "99999999d"])
def test_a_ttl_that_cannot_be_is_told_with_its_bounds(ttl: str) -> None:
    ran = run("set", "k", "v", "--ttl", ttl)
    assert ran.status == 3 and "bad_ttl" in ran.err and "less than 1e9 seconds" in ran.err


@pytest.mark.parametrize("document", ["", "# only a comment\n", "\n\n"])
def test_a_document_that_writes_nothing_says_so(document: str) -> None:
    assert run("mutate", "-", stdin=document.encode()).text.splitlines()[0] == "# pinfold: warning no line of it writes anything"
