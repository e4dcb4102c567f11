"""`pinfold doctor`: a report on a store, and with --repair a new file of what can be read. The work is `pinfold.doctor`'s.

Exit status 0 where the store is sound or was repaired, 5 where damage was found or remains.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pinfold.doctor import Finding, Repair, Report, examine_store, repair
from pinfold.doors.arguments import Common, Parser
from pinfold.doors.cli import BROKEN, OK, write, write_json
from pinfold.doors.progress import progress
from pinfold.errors import Refused
from pinfold.journal.open import open_journal
from pinfold.journal.url import default_url


def run_doctor(words: Sequence[str]) -> int:
    parser = Parser(
        "doctor", "[--repair]", "Check every byte of a store and report; nothing is changed without --repair. Exit status 5 where damage was found."
    )
    parser.add_argument("--repair", action="store_true", help="make a new file of what can be read; the damaged one is kept beside it")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return OK
    if bare:
        parser.error(f"{bare[0]!r} is one word too many")
    common = Common(flags)
    url = common.store or default_url()
    if flags.repair:
        return _run_repair(url, common.json)
    report = _examined(url)
    if common.json:
        write_json(report)
    else:
        write("\n".join([*_told(report), _verdict(report, "nothing was changed; `pinfold doctor --repair` keeps what can be read")]))
    return OK if report.ok else BROKEN


def _examined(url: str) -> Report:
    with progress("examining") as told:
        return examine_store(url, told)


def _run_repair(url: str, as_json: bool) -> int:
    """Repair, then look again: what remains decides the exit status."""
    journal = open_journal(url)  # a handle: nothing is opened
    path = getattr(journal, "path", None)
    if path is None:
        raise Refused(f"{journal.url} is no file that could be repaired", code="not_a_file", hint="only SQLite stores are repaired")
    done: Repair | None = None
    try:
        with progress("repairing") as told:
            done = repair(path, time.time_ns() // 1_000_000, told)
    except Refused as refused:
        if refused.code != "not_damaged":
            raise
    report = _examined(url)
    if as_json:
        write_json({"repaired": done, "report": report})
    else:
        write("\n".join([*(_repair_told(done) if done else ()), *_told(report), _verdict(report, "this is left after the repair")]))
    return OK if report.ok else BROKEN


# --- words --------------------------------------------------------------------------------------------------------


def _told(report: Report) -> list[str]:
    if not report.exists:
        return [report.store]
    lines = [report.store + (f": {report.size_bytes} bytes" if report.size_bytes is not None else "")]
    lines.append("format    " + ", ".join(f"{name} {number}" for name, number in report.formats.items()))
    if report.lock is not None:
        who = f" by process {', '.join(map(str, report.lock.pids))}" if report.lock.pids else ""
        lines.append("lock      " + ("unknown" if report.lock.held is None else f"held{who}" if report.lock.held else "free"))
    for row in report.sessions:
        chain = "chain ok" if row.chain_ok else "CHAIN BROKEN"
        snapshots = f"{len(row.snapshots)} snapshots {'ok' if row.snapshots_ok else 'DAMAGED'}"
        large = "" if row.large_values_ok else ", LARGE VALUES DAMAGED"
        clock = f", its clock is {row.clock_ahead_s:g}s ahead of now" if row.clock_ahead_s else ""
        lines.append(f"session   {row.session_id}: {row.entries} entries, {row.first_seq}..{row.last_seq}, {chain}, {snapshots}{large}{clock}")
    lines += [f"PROBLEM   {_line(finding)}" for finding in report.findings if finding.damage]
    return lines


def _verdict(report: Report, otherwise: str) -> str:
    if not report.exists:
        return "no store there yet; the first use makes it"
    damaged = sum(finding.damage for finding in report.findings)
    return "clean" if report.ok else f"{damaged} {'problem' if damaged == 1 else 'problems'} found; {otherwise}"


def _repair_told(done: Repair) -> list[str]:
    lines = [f"repaired  {done.path}: {done.sessions} sessions, {done.entries_kept} entries kept, {done.entries_lost} lost, {done.slots_lost} values lost"]
    lines.append(f"damaged   kept as {done.damaged}")
    if done.quarantine:
        lines.append(f"unread    kept in {done.quarantine}")
    return [*lines, *(f"was       {_line(finding)}" for finding in done.findings)]


def _line(finding: Finding) -> str:
    where = f"{finding.session} " if finding.session else ""
    return f"{where}{finding.code}: {finding.message}"
