# Everything a contributor runs. `make help` lists it; CONTRIBUTING.md says when to use which.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run-installed
DEV := $(VENV)/.dev-installed
PIP := PYTHONUNBUFFERED=1 $(BIN)/pip install --disable-pip-version-check --progress-bar off

# A line for each package that comes: an installation that is silent for a minute looks like one that hangs.
SHELL := bash
SHOW := awk '/^ *(Downloading|Using cached|Processing) / { sub(/ \(from .*/, ""); \
  sub(/^ *(Downloading|Using cached|Processing) (.*\/)?/, "  "); print; fflush() }'

# Modules that are compiled once are read by every process that a test starts; without that each would compile them all.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lock lint types up test browser fuzz attack test-long failover failover-gap chaos spec spec-long test-release clean evaluate walks statements
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: $(DEV)  ## a virtual environment in .venv with the package and its pinned, hashed dependencies

# What running needs, and no more; what working on it needs comes on top, in the same environment.
$(RUN): pyproject.toml requirements/run.lock
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "installing what running needs (requirements/run.lock)"
	@set -o pipefail; $(PIP) --require-hashes --no-deps -r requirements/run.lock | $(SHOW)
	@echo "installing dhsched"
	@$(PIP) -q --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): $(RUN) requirements/dev.lock
	@echo "installing what tests, types, specification and evaluation need (requirements/dev.lock)"
	@set -o pipefail; $(PIP) --require-hashes --no-deps -r requirements/dev.lock | $(SHOW)
	@touch $@

LOCK = $(BIN)/uv pip compile -q --generate-hashes --universal --no-emit-index-url --no-header --python-version 3.11
lock: $(RUN)  ## resolve pyproject.toml anew into requirements/run.lock, and requirements/dev.lock on top of it
	$(BIN)/pip install -q uv
	echo 'setuptools>=77' | $(LOCK) --upgrade pyproject.toml - --extra avatar --extra embedded -o requirements/run.lock
	$(LOCK) --upgrade pyproject.toml -c requirements/run.lock \
	  --extra dev --extra avatar --extra embedded --extra evaluation -o requirements/dev.lock

lint: setup  ## ruff, check only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy --strict
	$(BIN)/mypy

up: $(RUN)  ## a whole deployment on this machine, with a face that speaks, to watch in a browser; Ctrl-C stops it
	$(BIN)/dhsched up

test: setup  ## the whole suite that fits in 5 minutes on 2 cores
	$(BIN)/pytest -n 3 --dist worksteal

test-release: setup  ## what CI runs beside `make test`: the wheel, the quickstart, slow faults
	$(BIN)/pytest -n 2 --dist worksteal -m release --timeout 300

browser: setup  ## what a viewer sees, in a real headless Chromium
	$(BIN)/pytest -n 2 --dist worksteal -m 'browser and not long' tests/browser

fuzz: setup  ## what each endpoint and frame costs with the worst input: CPU, longest tick, memory; prints the table
	$(BIN)/pytest -m 'release or not release' -k fuzz --timeout 600 tests/integration/test_fuzz.py

ROUNDS ?= 5
attack: setup  ## P99 of an honest tenant's pushes while another attacks, beside a control (ROUNDS=5); a table and a line of JSON
	$(BIN)/python -m tests.attack --rounds $(ROUNDS)

test-long: setup  ## what takes minutes: longer runs, more seeds
	$(BIN)/pytest -m long --timeout 3600

failover: setup  ## real stores that fail over, forget and are moved; a table says what was lost, repaired, restarted
	$(BIN)/pytest -n 2 --dist worksteal -m failover --timeout 240 tests/failover

RUNS ?= 5
failover-gap: setup  ## how long input stands still when a cluster's primary is killed: the median of RUNS runs, alone
	$(BIN)/pytest -m failover --timeout 240 --runs $(RUNS) -k "replaced_by_force and kill" tests/failover

MINUTES ?= 10
SEED ?=
STORE ?= replicated
chaos: setup  ## a deployment under seeded faults (MINUTES=10, SEED=, STORE=cluster, HOSTILE=1; docs/internals/chaos.md)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --store $(STORE) $(if $(HOSTILE),--hostile) --quiet

spec: setup  ## TLC over spec/*.tla and its mutants; re-derives the state counts the tests assert (needs Java 11+)
	$(BIN)/python -m spec

spec-long: setup  ## the larger TLC configurations
	$(BIN)/python -m spec --long

evaluate: setup  ## the paper's evaluation into evaluation/results; QUICK=1 for a smoke run into results/quick
	$(BIN)/python -m evaluation all $(if $(QUICK),--quick)

walks: setup  ## files and entries of the four main paths through the source (ARCHITECTURE.md has the last table)
	$(BIN)/python -m tests.walks --json

AGAINST ?=
statements: setup  ## statements and public docstrings of src, per package (AGAINST=<revisions> beside today's)
	$(BIN)/python -m tests.statements $(if $(AGAINST),--against $(AGAINST))

clean:  ## remove what setup and the tests made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spec/states evaluation/results/quick evaluation/results/.parts
