#!/usr/bin/env bash
# The wheel in an empty venv, as a user gets it: no dev extras, no checkout on the path. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH PINFOLD_SESSION PINFOLD_ACTOR MEMNET_SESSION
export PINFOLD_STORE="sqlite:///$work/store.db" PIP_DISABLE_PIP_VERSION_CHECK=1

"${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" .
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "$work"/wheel/pinfold-*.whl
cd "$work"
pinfold="$work/venv/bin/pinfold"

fail() { echo "smoke: $1" >&2; exit 1; }
# Reads all of its input before it looks: grep -q leaves at the first match, and pipefail then counts the writer's SIGPIPE.
holds() { local text; text=$(cat); [[ "$text" == *"$1"* ]]; }

"$pinfold" --help | holds 'pinfold once' || fail "--help shows no help"
[ "$("$pinfold" version)" = "pinfold $("$work/venv/bin/python" -c 'import pinfold; print(pinfold.__version__)')" ] || fail "the version differs"
printf 'byte \000 exact\377' > value
"$pinfold" set key - < value > /dev/null
"$pinfold" peek key > got
cmp value got || fail "a value did not come out as it went in"
[ "$("$pinfold" once work -- echo done)" = "done" ] || fail "once gave no output"
[ "$("$pinfold" once work -- echo again)" = "done" ] || fail "once ran twice"
"$pinfold" peek nothing --fail-on-miss 2> /dev/null && fail "a miss did not fail when asked to"
"$pinfold" doctor > /dev/null || fail "doctor found damage"
"$pinfold" examples map > map.txt && "$pinfold" session open town --map-file map.txt > /dev/null || fail "the bundled map does not open a session"
"$pinfold" examples workflow | "$pinfold" add --session town - > /dev/null || fail "the bundled lines are not accepted"
"$pinfold" query pin-map mara --session town | holds 'drinks_at' || fail "the pin map lacks an edge"

mkdir home && HOME="$work/home" "$pinfold" install project > /dev/null && grep -q '"command": "pinfold"' .mcp.json || fail "install wrote no entry"
echo '{"type":"entity","name":"Alice","entityType":"person","observations":["likes tea"]}' > memory.jsonl
"$pinfold" import memory memory.jsonl --session town2 | holds 'created 1 node' || fail "import brought nothing"

"$work/venv/bin/python" -X importtime -m pinfold peek key 2> imports > /dev/null
for module in asyncio logging dataclasses numpy inspect pinfold.install pinfold.importers pinfold.ingest; do
    if grep -qE "\| +$module$" imports; then fail "peek imports $module"; fi
done

mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR="$work/run"
"$pinfold" serve --background 2> /dev/null || fail "serve does not start without extras"
"$pinfold" peek key > got; cmp value got || fail "a value did not come through the server as it went in"
"$pinfold" serve --status | holds 'did      1 command,' || fail "peek did not find the server"
"$pinfold" serve --stop 2> /dev/null || fail "serve does not stop"
"$pinfold" serve --http 2> said && fail "serve --http runs without its extra"
grep -q "pip install 'pinfold\[mcp\]'" said || fail "serve --http does not name its extra"
"$pinfold" top --once | holds 'hit ratio' || fail "top shows nothing"

"$work/venv/bin/python" - << 'PYTHON' || fail "the library does not work"
import pinfold
with pinfold.Memory() as memory:
    assert memory.session("library").once("key", lambda: 42) == 42
assert all(hasattr(pinfold, name) for name in pinfold.__all__)
PYTHON

mkdir project && printf 'def f(): pass\n' > project/a.py
"$pinfold" ingest code project --session code | holds '1 file, 2 pins' || fail "a Python file is not ingested"
printf 'f();\n' > project/b.js
if "$pinfold" ingest code project --session code 2> said; then fail "JavaScript is read without its extra"; fi
grep -q "pip install 'pinfold\[code\]'" said || fail "the missing extra of code is not named"
"$work/venv/bin/python" -m zipfile -l "$work"/wheel/pinfold-*.whl | holds 'ingest/queries/go.scm' || fail "the wheel lacks the query files"

if "$pinfold" mcp < /dev/null 2> said; then fail "mcp runs without its extra"; fi
grep -q "pip install 'pinfold\[mcp\]'" said || fail "a missing extra is not named"
echo "smoke: the wheel works in an empty venv"
