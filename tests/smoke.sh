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

"$pinfold" --help | grep -q 'pinfold once' || fail "--help shows no help"
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
"$pinfold" query pin-map mara --session town | grep -q 'drinks_at' || fail "the pin map lacks an edge"

"$work/venv/bin/python" -X importtime -m pinfold peek key 2> imports > /dev/null
for module in asyncio logging dataclasses numpy inspect; do
    if grep -qE "\| +$module$" imports; then fail "peek imports $module"; fi
done

"$work/venv/bin/python" - << 'PYTHON' || fail "the library does not work"
import pinfold
with pinfold.Memory() as memory:
    assert memory.session("library").once("key", lambda: 42) == 42
assert all(hasattr(pinfold, name) for name in pinfold.__all__)
PYTHON

if "$pinfold" mcp < /dev/null 2> said; then fail "mcp runs without its extra"; fi
grep -q "pip install 'pinfold\[mcp\]'" said || fail "a missing extra is not named"
echo "smoke: the wheel works in an empty venv"
