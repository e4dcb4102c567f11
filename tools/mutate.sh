#!/usr/bin/env bash
# Mutation testing of the pure rooms: tools/mutate.sh [MODULE ...] of src/pinfold/state. Needs `pip install mutmut`.
# On a copy, against tests/state: each mutant meets the tests that reach its function, examples before properties, and the first failure ends it.
# WORK=DIR keeps the copy, and a second run does only what is new in it. docs/design/mutants.md says why what survives may.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
modules=("$@")
[ ${#modules[@]} -gt 0 ] || modules=(silo promises value session housekeep undo saved schema draft memory_rows resting)
declare -A tests=([silo]="silo promises" [value]="value silo" [session]="session_state") # others: the test of the same name
if [ -z "${WORK:-}" ]; then
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
fi
mkdir -p "$WORK" && cd "$WORK"
rm -rf src tests && mkdir -p tests/state
cp -rp "$here/src" src
cp -p "$here/tests/conftest.py" tests/
for module in "${modules[@]}"; do
    for name in ${tests[$module]-$module}; do cp -p "$here/tests/state/test_$name.py" tests/state/; done
done
cat >> tests/conftest.py <<'END_OF_CONFTEST'


# A test runs thousands of times here and has only to fail: few examples, always the same, none made smaller.
from hypothesis import Phase, is_hypothesis_test  # noqa: E402

settings.register_profile("mutation", max_examples=5, derandomize=True, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck)
settings.load_profile("mutation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: is_hypothesis_test(item.function))
    for item in items:
        if is_hypothesis_test(item.function):
            item.function._hypothesis_internal_use_settings = settings.get_profile("mutation")  # also where a test asks for more
END_OF_CONFTEST
cat > pyproject.toml <<END_OF_CONFIG
[tool.mutmut]
source_paths = ["src"]
only_mutate = [$(printf '"src/pinfold/state/%s.py",' "${modules[@]}")]
pytest_add_cli_args_test_selection = ["tests"]
pytest_add_cli_args = ["-p", "no:cacheprovider"]
track_dependencies = false
[tool.pytest.ini_options]
markers = ["requirement(*ids): a promise"]
END_OF_CONFIG
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTEST_ADDOPTS="-p no:unraisableexception" # its four rounds of garbage collection cost more than a test
"$python" -m mutmut run --max-children "${CHILDREN:-2}" > run.log 2>&1 || { tail -20 run.log; exit 1; }
echo "| module | mutants | killed | survived |"
echo "|---|---|---|---|"
"$python" -m mutmut results --all true 2> /dev/null > results || true
for module in "${modules[@]}"; do
    mine=$(grep "pinfold\.state\.$module\." results || true)
    echo "| $module | $(grep -c . <<< "$mine") | $(grep -cE ': (killed|timeout)$' <<< "$mine") | $(grep -cvE ': (killed|timeout)$' <<< "$mine") |"
done
"$python" - <<'END_OF_REPORT'
from mutmut.mutation.diff_apply import find_mutant, get_diff_for_mutant

for line in open("results"):
    name, _, status = line.strip().partition(": ")
    if status not in ("killed", "timeout"):
        diff = get_diff_for_mutant(name, path=find_mutant(name).path).splitlines()
        print(f"--- {name} {status}", *(line for line in diff if line.startswith(("- ", "+ "))), sep="\n")
END_OF_REPORT
