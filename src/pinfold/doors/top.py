"""`pinfold top`: who is at work on a store, looked at again and again. It reads the store itself; a server adds what it did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from pinfold.doors import client
from pinfold.doors.arguments import Common, Parser, duration
from pinfold.doors.cli import open_memory, say, write, write_json
from pinfold.journal.url import default_url, resolved

ROWS = 20
"""Sessions shown: those that are written to most, then the longest."""
HEAD = ("session", "seq", "turns/s", "slots", "pending", "nodes", "edges", "hits", "misses", "hit ratio", "bytes")


class Row(msgspec.Struct, frozen=True):
    """One session. hits, misses: as far as they were journaled, which takes up to a minute; single commands journal none."""

    session_id: str
    seq: int
    turns_per_s: float
    slots: int
    pending: int
    nodes: int
    edges: int
    hits: int
    misses: int
    bytes: int


class Look(msgspec.Struct, frozen=True):
    """A store at one moment. server: what its server says of itself, with rates, None where none runs."""

    store: str
    sessions: int
    turns_per_s: float
    pending: int
    server: dict[str, Any] | None
    rows: list[Row]


class Looker:
    """Looks at a store; rates are since the look before."""

    def __init__(self, memory: Any, url: str) -> None:
        self._memory = memory
        self._base = client.address_of(resolved(url))
        self._seqs: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._at = 0.0

    def look(self) -> Look:
        """Return how things stand now."""
        now = time.monotonic()
        passed_s = now - self._at if self._at else 0.0
        infos = {info.name: info for info in self._memory._journal.sessions()}
        rates = {name: (info.last_seq - self._seqs.get(name, 0)) / passed_s if passed_s else 0.0 for name, info in infos.items()}
        self._seqs, self._at = {name: info.last_seq for name, info in infos.items()}, now
        order = sorted(infos.values(), key=lambda info: (-rates[info.name], -info.last_seq, info.name))
        rows: list[Row] = []
        for info in order:
            if len(rows) == ROWS:
                break
            session = self._memory.session(info.name.partition("@")[0])
            if session._id == info.name and session._replica.state.exists and not session._replica.is_over():
                rows.append(_row(session.status(), info, rates[info.name]))
        living = len(rows) if len(rows) < ROWS else len(infos)  # where they are many, those that ended are not told apart
        return Look(self._memory.url, living, sum(rates.values()), sum(row.pending for row in rows), self._server(passed_s), rows)

    def _server(self, passed_s: float) -> dict[str, Any] | None:
        from pinfold.doors.serve import ask

        told = ask(self._base, "status")
        if told is None:
            return None
        counts, before = told["counts"], self._counts
        self._counts = counts
        told["commands_per_s"] = (counts.get("done", 0) - before.get("done", 0)) / passed_s if passed_s and before else 0.0
        return told


def _row(status: Any, info: Any, rate: float) -> Row:
    return Row(
        session_id=status.session_id,
        seq=status.seq,
        turns_per_s=rate,
        slots=status.short_term["slots"],
        pending=status.promises["pending"],
        nodes=status.long_term["nodes"],
        edges=status.long_term["edges"],
        hits=status.short_term["hits"],
        misses=status.short_term["misses"],
        bytes=info.entry_bytes + info.snapshot_bytes + info.blob_bytes,
    )


# --- words --------------------------------------------------------------------------------------------------------


def summary(look: Look) -> list[str]:
    """Return the lines above the table."""
    ratio = _ratio(sum(row.hits for row in look.rows), sum(row.misses for row in look.rows))
    lines = [f"{look.store}  sessions {look.sessions}  turns/s {look.turns_per_s:.1f}  pending {look.pending}  hit ratio {ratio}"]
    if look.server is not None:
        counts, tally = look.server["counts"], look.server["tally"]
        told = {
            "server pid": look.server["pid"],
            "commands": counts.get("done", 0),
            "commands/s": f"{look.server['commands_per_s']:.1f}",
            "hit ratio": _ratio(tally.get("hits", 0), tally.get("misses", 0)),
            "loaded": look.server["sessions"],
        }
        lines.append("  ".join(f"{name} {value}" for name, value in told.items()))
    return lines


def _ratio(hits: int, misses: int) -> str:
    return f"{hits / (hits + misses):.0%}" if hits + misses else "-"


def cells(row: Row) -> list[str]:
    """Return one line of the table."""
    counts = (row.slots, row.pending, row.nodes, row.edges, row.hits, row.misses)
    return [row.session_id, str(row.seq), f"{row.turns_per_s:.1f}", *map(str, counts), _ratio(row.hits, row.misses), str(row.bytes)]


def plain(look: Look) -> str:
    """Return a look as plain lines, columns under each other."""
    from pinfold.doors.screen import columns

    table = [[head.replace(" ", "_") for head in HEAD], *map(cells, look.rows)]
    return "\n".join([*summary(look), *columns(table, 1_000)])


def run_top(words: Sequence[str]) -> int:
    parser = Parser("top", "[--once] [flags]", "Who is at work: sessions, promises in flight, turns a second, hits. On a terminal again and again.")
    group = parser.add_argument_group("flags of this command")
    group.add_argument("--once", action="store_true", help="print it once, plainly")
    group.add_argument("--interval", type=duration, default=2.0, metavar="2s", help="time between two looks, and of the rates (default 2s)")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if bare:
        parser.error(f"{bare[0]!r} is one word too many")
    common = Common(flags)
    if common.store is not None:
        from pinfold.journal.open import require_store

        require_store(common.store)
    with open_memory(common) as memory:
        looker = Looker(memory, common.store or default_url())
        if common.json or flags.once or not _is_terminal():
            look = looker.look()
            if look.rows and not flags.once:
                time.sleep(min(flags.interval, 10.0))
                look = looker.look()
            write_json(msgspec.to_builtins(look)) if common.json else write(plain(look))
            return 0
        try:
            return _watch(looker, flags.interval)
        except KeyboardInterrupt:
            return 0


def _is_terminal() -> bool:
    from pinfold import caller

    out = caller.stdout()
    return out is not None and bool(out.isatty())


def _watch(looker: Looker, interval_s: float) -> int:
    """Show looks on the terminal until interrupted."""
    try:
        from rich.live import Live
    except ModuleNotFoundError:
        write(plain(looker.look()))
        say("to have it refreshed: pip install 'pinfold[top]'")
        return 0
    with Live(_painted(looker.look()), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval_s)
            live.update(_painted(looker.look()), refresh=True)


def _painted(look: Look) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for place, head in enumerate(HEAD):  # a narrow terminal cuts names, not numbers
        table.add_column(head, justify="right" if place else "left", overflow="ellipsis", no_wrap=True, min_width=len(head) if place else 8)
    for row in look.rows:
        table.add_row(*cells(row), style="bold" if row.turns_per_s else None)
    return Group(*(Text(line, overflow="ellipsis", no_wrap=True) for line in summary(look)), Text(""), table)
