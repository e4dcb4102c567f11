"""Every maximum and default, its unit in the name, with its reason. A refusal names the limit it hit."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- values and keys -------------------------------------------------------------------------------------------
VALUE_BYTES = 16 * MIB
"""One value. Larger results belong in a file whose path is the value."""
INLINE_VALUE_BYTES = 32 * KIB
"""Values above this live beside the journal as blobs, so that opening a session does not read them."""
KEY_BYTES = 4 * KIB
"""One key. `call_key` hashes long arguments, so only a mistake meets this."""
SILO_INLINE_BYTES = 256 * MIB
"""Keys plus inline values of one session: it must fit in RAM."""
BLOB_BYTES_PER_SESSION = 4 * GIB
"""Large values of one session, in the store."""
BLOB_CACHE_BYTES = 64 * MIB
"""Large values a process keeps after reading them."""

# --- names ------------------------------------------------------------------------------------------------------
SESSION_NAME_CHARS = 128
SESSION_NAME_PATTERN = r"[A-Za-z0-9_.:-]{1,128}"
ACTOR_CHARS = 128
REQUEST_ID_CHARS = 128

SESSIONS_IN_RAM = 1_000
"""Sessions a process keeps though nobody holds them: a server asked for ever new names must not grow. One costs about 30 KB and
what is in it; opening a small one again takes a millisecond."""

# --- promises ---------------------------------------------------------------------------------------------------
LEASE_DEFAULT_S = 30.0
"""Library leases are renewed in the background while the work runs, so a short one frees others soon."""
LEASE_MCP_S = 300.0
"""An agent cannot renew while it thinks; five minutes covers a long tool call."""
LEASE_MAX_S = 24 * 3600.0
LEASE_MIN_S = 0.001
SETTLED_KEPT_S = 3600
SETTLED_KEPT_COUNT = 10_000
"""Settled promises answer `resolve` for a while, then go: the journal remembers longer than RAM must."""
REASON_CHARS = 4_000
"""A rejection reason is read by an agent; a longer traceback is cut with a mark."""

# --- graph ------------------------------------------------------------------------------------------------------
ROWS_PER_SESSION = 5_000_000
DOCUMENT_BYTES = MIB
DOCUMENT_LINES = 10_000
FIELDS_PER_ROW = 256
FIELD_VALUE_BYTES = 64 * KIB
"""One field of a row: a fact, not a file."""
CONTENT_BYTES = 512 * KIB
"""The field `content`: what was said is kept whole. The longest message of the public question sets has 349 kB."""

# --- reading the graph ------------------------------------------------------------------------------------------
BUDGET_TOKENS = 800
"""A pin map: about a page, which an agent can read again every turn."""
BUDGET_TOKENS_MIN = 64
"""Below this the footer would crowd out the rows."""
WALK_DEPTH = 2
WALK_DEPTH_MAX = 10_000
"""Depth alone costs nothing: rows and fan-out bound the work, and a long chain is a fair question."""
WALK_FANOUT = 256
"""Edges followed from one node in one direction, newest first: a hub cannot use up the work of a read."""
WALK_ROWS = 50
WALK_ROWS_MAX = 10_000
PATH_NODES = 100_000
"""Nodes a search for a path looks at before it gives up and says so."""
LIST_ROWS = 100
LIST_ROWS_MAX = 10_000

# --- ingest -----------------------------------------------------------------------------------------------------
INGEST_ROWS = 500_000
"""Pins and edges of one source: a tenth of what a session holds, and far above one project of one's own."""
INGEST_BYTES = 256 * MIB
"""Source text read in one go. More than this is somebody else's code beside one's own."""
INGEST_FILE_BYTES = 2 * MIB
"""A larger file is made by a program: it is skipped, and said so."""
INGEST_BATCH_ROWS = 5_000
"""Rows of one entry of a large ingest: some tenths of a second, for which other writers wait."""
INGEST_ATTEMPTS = 16
"""Differences tried while others write the same pins before `Busy`."""
INGEST_TEXT_CHARS = 160
"""A field of a pin that holds words: what a line of a pin map can afford. The file has the rest."""

# --- engine -----------------------------------------------------------------------------------------------------
REQUESTS_KEPT = 1_024
"""Recent request ids whose outcome a retry gets back."""
TURN_ATTEMPTS = 64
"""Losses to other writers before `Busy`. Eight processes racing on one session of a Redis cluster lost sixteen in a row."""
LOCK_WAIT_S = 10.0
"""Longest wait for another writer before `Busy`."""
TOUCH_INTERVAL_S = 60.0
"""Reads are journaled together, with a write, at most this often."""
HOUSEKEEP_PER_TURN = 32
"""Expired slots and old promises removed along with a write: bounded, so no write pays for all of them."""
SNAPSHOT_MIN_ENTRIES = 2_048
SNAPSHOT_MIN_BYTES = 4 * MIB
"""A snapshot is due when the tail exceeds these and half of the last snapshot: amortised O(1) a write."""
SNAPSHOT_CLOSE_BYTES = MIB // 2
"""Who wrote leaves a snapshot behind at close from this tail on, and half of the last one: read back, a snapshot costs a
third of the entries it stands for, and the next to open may be a single command."""

# --- retention --------------------------------------------------------------------------------------------------
HISTORY_S = 30 * 24 * 3600
HISTORY_BYTES = 64 * MIB
REPLACED_VALUES_S = 24 * 3600
REPLACED_VALUES_BYTES = 256 * MIB
TRIM_SHARE = 4
TRIM_SLACK_S = 24 * 3600
"""History is trimmed when a quarter more than HISTORY_BYTES, or a day more than HISTORY_S, is there: trimming folds what goes
into a snapshot, and that is to be paid rarely."""
ENDED_SESSION_KEPT_S = 7 * 24 * 3600
BLOB_GRACE_S = 3600
"""A blob is put before the entry that names it; nothing younger than this is collected."""

# --- waiting ----------------------------------------------------------------------------------------------------
POLL_MIN_S = 0.001
POLL_MAX_S = 0.008
"""Across processes p50 of a wake-up stays under 10 ms; one who waits costs 1 to 2 % of a core."""

# --- doors ------------------------------------------------------------------------------------------------------
PEEK_PART_BYTES = 80_000
"""About 20,000 tokens: a longer value is read in parts."""
MCP_RENEW_MAX_S = 15 * 60.0
"""A server renews what was claimed over it while the agent thinks; an agent that never comes back blocks others no longer."""
MCP_WAIT_MAX_S = 3600.0
"""Longest wait for other people's work in one call; the answer is then pending, and the caller may ask again."""


def field_limit(key: str) -> tuple[str, int]:
    """Return (name, bytes) of the limit on a field's value."""
    return ("CONTENT_BYTES", CONTENT_BYTES) if key == "content" else ("FIELD_VALUE_BYTES", FIELD_VALUE_BYTES)
