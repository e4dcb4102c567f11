#!/usr/bin/env bash
# Mutation testing of the pure rooms: tools/mutate.sh [MODULE ...] (silo promises session value). Needs `pip install mutmut`.
# Works on a copy, prints what survived; docs/design/mutants.md says why those that are left may.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
modules=("$@")
[ ${#modules[@]} -gt 0 ] || modules=(silo promises session value)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here/src" "$work/src"
mkdir -p "$work/tests"
cp "$here/tests/conftest.py" "$work/tests/"
for name in silo promises session_state value; do cp "$here/tests/state/test_$name.py" "$work/tests/"; done
cat >> "$work/tests/conftest.py" <<'END'


from hypothesis import settings  # noqa: E402

settings.register_profile("few", max_examples=15, derandomize=True, deadline=None)
settings.load_profile("few")
END
cd "$work"
{
    echo '[tool.mutmut]'
    echo 'source_paths = ["src"]'
    printf 'only_mutate = ['
    for module in "${modules[@]}"; do printf '"src/pinfold/state/%s.py", ' "$module"; done
    echo ']'
    echo 'pytest_add_cli_args_test_selection = ["tests"]'
    echo 'pytest_add_cli_args = ["-q", "-x", "-p", "no:cacheprovider"]'
    echo '[tool.pytest.ini_options]'
    echo 'markers = ["requirement(*ids): a promise"]'
} > pyproject.toml
"${PYTHON:-python3}" -m mutmut run --max-children "${CHILDREN:-2}"
"${PYTHON:-python3}" -m mutmut results
