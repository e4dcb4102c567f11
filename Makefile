# Everything here works on a fresh machine with Python >= 3.11 and pip alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-services test-heavy check bench soak memory mutate smoke docs clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pinfold needs Python 3.11 or newer: make PYTHON=python3.11 …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)          ## eight workers, one store: nothing is done twice
	@$(BIN)/pinfold demo

test: $(READY)          ## the test suite, but for servers and peers
	@$(BIN)/python -m pytest -m "not services and not peer and not heavy"
	@echo "left out: tests with real servers and with peers from PyPI (make test-services)"

test-services: $(READY) ## real Valkey, Redis Cluster and PostgreSQL servers from wheels; peers in venvs of their own
	@$(BIN)/python -m pytest -m "(services or peer) and not heavy"

test-heavy: $(READY)    ## the command lines of Claude Code, Codex and Gemini, basic-memory: two gigabytes from PyPI and npm
	@$(BIN)/python -m pytest -m heavy

check: $(READY)         ## lint and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)         ## every figure beside peers, in one run: make bench [QUICK=1] [DATA=folder of recall sets] -> docs/benchmarks.md
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@$(BIN)/python -m benchmarks report $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA))

soak: $(READY)          ## long random runs: make soak SECONDS=1800 LINES=10000000 (of noise, for the parser)
	@PINFOLD_SOAK_LINES=$(or $(LINES),10000000) $(BIN)/python -m pytest --timeout 0 -k noise tests/dialect/test_parse.py tests/state/test_mutate.py
	@$(BIN)/python -m benchmarks.soak --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) --histories $(or $(HISTORIES),0)

memory: $(READY)        ## RAM and file over a million reads and 100,000 overwrites
	@$(BIN)/python -m benchmarks.memory

mutate: $(READY)        ## mutation testing of the pure rooms; some twenty minutes
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check mutmut
	@PYTHON=$(CURDIR)/$(BIN)/python bash tools/mutate.sh $(MODULES)

smoke:                  ## the wheel in an empty venv, without the dev extras
	@bash tests/smoke.sh

docs: $(READY)          ## the pages made from the operations table
	@$(BIN)/python -m pinfold.operations > docs/operations.md

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
