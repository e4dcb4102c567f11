"""MemNet's library names over this package: change the import and a program that drove its engine in-process goes on.

    from pinfold.compat.memnet import run_argv, InProcessEngine, run_memnet

A command line is answered as MemNet's was: {"exit_code", "stdout", "stderr"}, exit status 0 fine, 1 refused, 2 no such session;
rows on stdout; `@SESSION`, `@ID`, `@STAT`, `@VER` and `ok=… fail=…` where it wrote them; `@ERR: code|message|hint` once for every problem.

Deliberate differences, each mending something MemNet's users ran into:
* rows read as lines of the dialect, also from `read`, `context`, `neighbors` and `path`; `pipe_row` makes the older shape of one;
* an answer is its caller's own: nothing process-wide is swapped, so threads may call at once;
* what was acknowledged is in the store, which other processes share; a session lasts until its ttl, or until it is closed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold.dialect.legacy import EDGE_COLUMNS, LAW_COLUMNS
from pinfold.dialect.parse import parse_rows
from pinfold.errors import DocumentRefused, PinfoldError, Refused

if TYPE_CHECKING:
    from pinfold.memory import Memory
    from pinfold.operations.table import Operation, Param

EXIT_OK, EXIT_REFUSED, EXIT_NO_SESSION = 0, 1, 2
_NO_SESSION = frozenset(("no_session", "no_such_session", "session_required", "session_ended"))


class MemNetResponse(msgspec.Struct, frozen=True):
    """An answer with the session it was about and its error lines apart."""

    exit_code: int
    stdout: str
    stderr: str
    session_id: str | None
    errors: list[str]

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def run_argv(argv: Sequence[str], *, stdin: str | None = None, memory: Memory | None = None) -> dict[str, Any]:
    """Return {"exit_code", "stdout", "stderr"} of a MemNet command line. memory: the store; by default $PINFOLD_STORE or the user's."""
    answer = _answer(argv, stdin, memory)
    return {"exit_code": answer.exit_code, "stdout": answer.stdout, "stderr": answer.stderr}


def run_memnet(argv: Sequence[str], *, stdin: str | None = None, session: str | None = None, memory: Memory | None = None) -> MemNetResponse:
    """Return the answer to a MemNet command line. session: the one it works on, where the words name none."""
    return _answer(argv, stdin, memory, session)


class InProcessEngine:
    """MemNet's engine: `run` answers a command line. memory: the store; without it each command opens the default one."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory

    def run(self, argv: Sequence[str], *, stdin: str | None = None) -> dict[str, Any]:
        return run_argv(argv, stdin=stdin, memory=self._memory)


# --- environment --------------------------------------------------------------------------------------------------

UNHEARD = {
    "MEMNET_SERVE_HOST": "`pinfold serve --host`, which commands find", "MEMNET_SERVE_PORT": "`pinfold serve --port`, which commands find",
    "MEMNET_TEST_INLINE": "every command works on the store itself", "MEMNET_SERVE_INTERNAL": "commands find `pinfold serve`",
    "MEMNET_MCP_TRANSPORT": "`pinfold mcp` speaks stdio, and HTTP with --http",
    "MEMNET_LOCK_TIMEOUT_MS": "waits are bounded by the store", "MEMNET_MAX_ROWS": "limits.ROWS_PER_SESSION", "MEMNET_MAX_LAW": "limits.ROWS_PER_SESSION",
    "MEMNET_MAX_RELATIONS": "no limit of its own", "MEMNET_MAX_TAGS": "no limit of its own", "MEMNET_MAX_FIELDS": "limits.FIELDS_PER_ROW",
    "MEMNET_MAX_VALUE_BYTES": "limits.FIELD_VALUE_BYTES", "MEMNET_MAX_LINE_BYTES": "limits.DOCUMENT_BYTES", "MEMNET_MAX_BATCH_LINES": "limits.DOCUMENT_LINES",
    "MEMNET_MAX_SESSIONS": "no limit: sessions are in a file", "MEMNET_MAX_DEPTH": "reads are bounded by rows and tokens",
    "MEMNET_MAX_FANOUT": "reads are bounded by rows and tokens",
}  # fmt: skip
"""MemNet's variables that mean nothing here, and what stands in their place."""


class Environment(msgspec.Struct, frozen=True):
    """What MemNet's variables say. unheard: those that are set and mean nothing here, with what stands in their place."""

    session: str | None
    agent: str | None
    ttl_minutes: float | None
    unheard: dict[str, str]


def environment(environ: Mapping[str, str] | None = None) -> Environment:
    """Return what the environment says; pinfold's own variables come first. Raises Refused `bad_ttl`."""
    env = os.environ if environ is None else environ
    minutes = env.get("MEMNET_SESSION_TTL_MINUTES")
    if minutes and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", minutes):
        raise Refused(f"MEMNET_SESSION_TTL_MINUTES is {minutes!r}", code="bad_ttl", hint="a number of minutes")
    return Environment(
        env.get("PINFOLD_SESSION") or env.get("MEMNET_SESSION") or None,
        env.get("PINFOLD_ACTOR") or env.get("MEMNET_AGENT") or None,
        float(minutes) if minutes else None,
        {name: why for name, why in UNHEARD.items() if env.get(name)},
    )


# --- pipe rows ----------------------------------------------------------------------------------------------------


def pipe_row(line: str, columns: Sequence[str] = ()) -> str:
    r"""Return a displayed line as `@TAG: v1|v2|…`: its id, then columns; `\|` and `\\` in values.

    columns: the declared fields of a node's kind; those of edges and laws are known. Raises Refused `parse_error`, `newline_in_value`.
    """
    batch = parse_rows([line])
    if batch.problems or len(batch.ops) != 1 or batch.ops[0].id is None or not (batch.ops[0].op == "" or batch.ops[0].form == "law"):
        raise Refused(f"{line[:80]!r} is not a line that is displayed", code="parse_error", hint="KIND [id] ; key=value")
    op = batch.ops[0]
    fields = dict(op.fields)
    if op.form == "edge":
        fields |= {"src": op.src, "relation": op.rel, "dist": op.dst, "attrs": fields.get("note", "")}
    tag, names = {"edge": ("EDG", EDGE_COLUMNS), "law": ("LAW", LAW_COLUMNS)}.get(op.form, (op.kind, tuple(columns)))
    values = [str(op.id), *(fields.get(name, "") for name in names if name != "id")]
    if any("\n" in value or "\r" in value for value in values):
        raise Refused(f"{op.id} has a line break, which a pipe row cannot say", code="newline_in_value", hint="read the line itself")
    return f"@{tag}: " + "|".join(value.replace("\\", "\\\\").replace("|", "\\|") for value in values)


# --- command lines ------------------------------------------------------------------------------------------------


def _answer(argv: Sequence[str], stdin: str | None, memory: Memory | None, session: str | None = None) -> MemNetResponse:
    out: list[str] = []
    err: list[str] = []
    named: str | None = session
    code = EXIT_OK
    try:
        if list(argv[:1]) == ["version"]:
            from pinfold import __version__

            out.append(f"@VER: pinfold|{__version__}")
        else:
            row, arguments, common = _read(argv, stdin)
            named = common.get("session") or session
            named = _run(row, arguments, named, common.get("actor"), memory, out, err)
    except PinfoldError as error:
        code = EXIT_NO_SESSION if error.code in _NO_SESSION else EXIT_REFUSED
        err += _error_lines(error)
    except OSError as error:
        code = EXIT_REFUSED
        err.append(_error("bad_path", f"{error.filename}: {error.strerror}", ""))
    errors = [line for line in err if line.startswith("@ERR:")]
    return MemNetResponse(code, "".join(f"{line}\n" for line in out), "".join(f"{line}\n" for line in err), named, errors)


def _run(
    row: Operation, arguments: dict[str, Any], session: str | None, actor: str | None, memory: Memory | None, out: list[str], err: list[str]
) -> str | None:
    """Run a row, adding to out and err what it prints. Return the session it was about."""
    from pinfold.memory import Memory
    from pinfold.operations import Call, run

    env = environment()
    own = memory is None
    store = memory if memory is not None else Memory(background=False)
    opens = row.name in ("open", "session_load")
    try:
        session = session or (None if opens else env.session)
        if session is None and row.name == "open":
            session = f"s_{os.urandom(4).hex()}"
        if row.name == "open" and "ttl_s" not in arguments and env.ttl_minutes is not None:
            arguments["ttl_s"] = env.ttl_minutes * 60
        result = run(row, Call(store, session, default_session=_no_session, actor=actor or env.agent), arguments)
    finally:
        if own:
            store.close()
    if opens:
        session = result["session_id"]
        err.append(f"MEMNET_SESSION={session}")
        out.append(f"@SESSION: {session}|{result['seq']}|{result.get('ttl_s') or ''}")
    elif row.name == "status":
        counts = result["long_term"]
        out += [f"@SESSION: {result['session_id']}|{result['seq']}|{result['expires_at'] or ''}"]
        out += [f"@STAT: {name}|{counts[name]}" for name in ("nodes", "edges", "laws")]
    elif "minted" in result:
        out += result["lines"]
        err += _ids(result)
        err += [f"@DEL: {id}" for id in result["dropped"]]
        err.append(f"ok={len(result['lines']) + len(result['dropped'])} fail=0")
    else:
        text = row.text(result) if row.text is not None else msgspec.json.encode(result).decode()
        out += text.split("\n") if text else []
    return session


def _ids(result: dict[str, Any]) -> list[str]:
    """Return an @ID line for each minted id; nodes and edges are counted apart, as in MemNet."""
    counts = {"node": 0, "edge": 0}
    lines = []
    for id in result["minted"].values():
        form = "edge" if any(line.startswith(f"{id} [") for line in result["lines"]) else "node"
        lines.append(f"@ID: NEW_{form}_{counts[form]}|{id}")
        counts[form] += 1
    return lines


def _no_session() -> str:
    raise Refused("no session was named", code="no_session", hint="--session ID, or set MEMNET_SESSION")


def _error_lines(error: PinfoldError) -> list[str]:
    if isinstance(error, DocumentRefused):
        return [*(_error(p.code, f"{p.line}:{p.column} {p.message}", p.hint) for p in error.fields["problems"]), "ok=0 fail=1"]
    return [_error(error.code, error.message, error.hint)]


def _error(code: str, message: str, hint: str) -> str:
    """Return an @ERR line: its parts hold no pipes and no line breaks."""
    return "@ERR: " + "|".join(re.sub(r"[|\s]+", " ", part) for part in (code, message, hint) if part)


def _read(argv: Sequence[str], stdin: str | None) -> tuple[Operation, dict[str, Any], dict[str, str]]:
    """Return (row, its arguments, session and actor) of a command line. A bare ttl means minutes, as it did. Raises Refused `bad_request`."""
    from pinfold.operations import TABLE

    verbs = {verb: row for row in TABLE for verb in row.cli}
    count = 2 if " ".join(argv[:2]) in verbs else 1
    verb = " ".join(argv[:count])
    row = verbs.get(verb)
    if row is None:
        raise Refused(f"there is no command {' '.join(argv[:2])!r}", code="bad_request", hint="`pinfold --help` lists them")
    flags = {name: param for param in row.params for name in _flags(param)}
    arguments: dict[str, Any] = {"must_exist": True} if verb == "session resume" else {}
    common: dict[str, str] = {}
    bare: list[str] = []
    words = iter(argv[count:])
    for word in words:
        name, joined, value = word.partition("=")
        if not word.startswith("--"):
            bare.append(word)
        elif word == "--stdin":
            bare.append(stdin or "")
        elif name in flags and flags[name].kind == "bool":
            arguments[flags[name].name] = True
        elif name in flags or name in ("--session", "--agent", "--actor", "--file"):
            value = value if joined else next(words, "")
            if name in flags:
                _take(arguments, flags[name], value)
            elif name == "--file":
                with open(value, encoding="utf-8") as file:
                    bare.append(file.read())
            else:
                common["session" if name == "--session" else "actor"] = value
        else:
            raise Refused(f"{verb} has no {name}", code="bad_request", hint=f"it takes {' '.join(flags) or 'no flags'}")
    if verb.startswith("session ") and not row.store and bare and not any(param.positional for param in row.params):
        common["session"] = bare.pop(0)
    for param in row.params:
        if param.positional and bare and param.name not in arguments:
            arguments[param.name] = bare[:] if param.kind == "strings" else _value(param, bare[0])
            del bare[: len(bare) if param.kind == "strings" else 1]
    if bare:
        raise Refused(f"{bare[0][:60]!r} is one word too many", code="bad_request", hint=f"pinfold {verb} --help")
    return row, arguments, common


def _flags(param: Param) -> list[str]:
    names = [] if param.positional or param.cli == "" else [param.cli or param.name]
    return [f"--{name.replace('_', '-')}" for name in (*names, *([param.also] if param.also else []))]


def _take(arguments: dict[str, Any], param: Param, text: str) -> None:
    if param.kind == "strings":
        arguments[param.name] = [*arguments.get(param.name, []), *([text] if param.repeat or param.also else text.split(","))]
    else:
        arguments[param.name] = _value(param, text)


def _value(param: Param, text: str) -> Any:
    try:
        if param.kind == "int":
            return int(text)
        if param.kind == "seconds":
            return float(text) * 60
    except ValueError:
        hint = "minutes" if param.kind == "seconds" else "a whole number"
        raise Refused(f"{param.name}: {text[:40]!r} is no number", code="bad_request", hint=hint) from None
    return text
