#!/usr/bin/env bash
# Mutation testing of the pure rooms: tools/mutate.sh [MODULE ...] (silo promises value session). Needs `pip install mutmut`.
# Each module against its own tests, on a copy; prints what survived. docs/design/mutants.md says why those that are left may.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
modules=("$@")
[ ${#modules[@]} -gt 0 ] || modules=(silo promises value session)
declare -A tests=([silo]="silo promises" [promises]="promises" [value]="value silo" [session]="session_state")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for module in "${modules[@]}"; do
    mkdir -p "$work/$module/tests"
    cd "$work/$module"
    cp -r "$here/src" src
    cp "$here/tests/conftest.py" tests/
    for name in ${tests[$module]}; do cp "$here/tests/state/test_$name.py" tests/; done
    cat >> tests/conftest.py <<'END'


from hypothesis import settings  # noqa: E402

settings.register_profile("few", max_examples=10, derandomize=True, deadline=None)
settings.load_profile("few")
END
    cat > pyproject.toml <<END
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/pinfold/state/$module.py"]
pytest_add_cli_args_test_selection = ["tests"]
pytest_add_cli_args = ["-q", "-x", "-p", "no:cacheprovider"]
[tool.pytest.ini_options]
markers = ["requirement(*ids): a promise"]
END
    timeout "${SECONDS_EACH:-900}" "${PYTHON:-python3}" -m mutmut run --max-children "${CHILDREN:-2}" > run.log 2>&1 || echo "$module: not finished"
    echo "$module: $(tr '\r' '\n' < run.log | grep -o '[0-9]*/[0-9]*  .*' | tail -1)"
    "${PYTHON:-python3}" -m mutmut results 2> /dev/null | while read -r name status; do
        case $status in *survived | *"no tests") echo "--- $name $status"; "${PYTHON:-python3}" -m mutmut show "${name%:}" 2> /dev/null | grep '^[-+] ' || true ;; esac
    done
done
