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

.PHONY: help setup lock lint types up test browser peers console fuzz attack test-long failover failover-gap chaos virtual virtual-ci spec spec-long mutants test-release clean evaluate walks statements cli-page dashboards image manifests upgrade typescript pipecat livekit livekit-gaps adapters
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
# The lock of an adapter prefers the versions of dev.lock, and has only what dev.lock has not, or has otherwise.
BEYOND_DEV = awk 'NR == FNR { if (/==/) dev[$$0] = 1; next } /==/ { keep = !($$0 in dev) } keep'
lock: $(RUN)  ## resolve pyproject.toml anew into requirements/run.lock, and requirements/dev.lock on top of it
	$(BIN)/pip install -q uv
	echo 'setuptools>=77' | $(LOCK) --upgrade pyproject.toml - --extra avatar --extra embedded -o requirements/run.lock
	$(LOCK) --upgrade pyproject.toml -c requirements/run.lock \
	  --extra dev --extra avatar --extra embedded --extra otel --extra evaluation -o requirements/dev.lock
	for adapter in livekit pipecat; do \
	  cp requirements/dev.lock requirements/$$adapter.lock; \
	  $(LOCK) pyproject.toml --extra $$adapter -o requirements/$$adapter.lock; \
	  $(BEYOND_DEV) requirements/dev.lock requirements/$$adapter.lock > requirements/.lock && mv requirements/.lock requirements/$$adapter.lock; \
	done

lint: setup  ## ruff, check only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy --strict
	$(BIN)/mypy

CELLS ?=
up: $(RUN)  ## a whole deployment on this machine, with a face that speaks, to watch in a browser; Ctrl-C stops it (CELLS=3)
	$(BIN)/dhsched up $(if $(CELLS),--cells $(CELLS))

test: setup  ## the whole suite that fits in 5 minutes on 2 cores
	$(BIN)/pytest -n 4 --dist worksteal

test-release: setup  ## what CI runs beside `make test`: the wheel, the quickstart, slow faults
	$(BIN)/pytest -n 3 --dist worksteal -m release --timeout 300

browser: setup  ## what a viewer sees, in a real headless Chromium
	$(BIN)/pytest -n 2 --dist worksteal -m 'browser and not long' tests/browser

peers: setup  ## the room beside WebRTC peers and servers that are not ours
	$(BIN)/pytest -n 2 --dist worksteal -m peers --timeout 240 tests/peers

WORKERS ?= 1000
LIVES ?= 20000
SECONDS ?= 600
console: setup  ## the web console with a large fleet in Chromium (WORKERS=1000, LIVES=20000, SECONDS=600); prints what it costs
	DHSCHED_CONSOLE_WORKERS=$(WORKERS) DHSCHED_CONSOLE_LIVES=$(LIVES) DHSCHED_CONSOLE_S=$(SECONDS) \
	  $(BIN)/pytest -s -m 'browser and long' tests/browser/test_console_fleet.py

# The adapter's packages alone; .venv's are seen through a .pth file, and what is in both is the adapter's.
.venvs/%/.installed: requirements/%.lock $(DEV)
	@echo "making .venvs/$* (requirements/$*.lock)"
	@$(PYTHON) -m venv .venvs/$*
	@set -o pipefail; PYTHONUNBUFFERED=1 .venvs/$*/bin/pip install --disable-pip-version-check --progress-bar off \
	  --require-hashes --no-deps -r requirements/$*.lock | $(SHOW)
	@.venvs/$*/bin/python -c 'import site, subprocess; \
	  seen = subprocess.check_output(["$(CURDIR)/$(BIN)/python", "-c", "import sysconfig; print(sysconfig.get_path(\"purelib\"))"], text=True).strip(); \
	  open(site.getsitepackages()[0] + "/dhsched-dev.pth", "w").write(f"import site; site.addsitedir({seen!r})\n")'
	@touch $@

adapters: livekit pipecat  ## both adapters below

VIEWER := .venvs/viewer/.installed
# What a browser needs to watch a room. Without npm the tests in a browser are skipped, and say so.
$(VIEWER): tests/livekit/viewer/package-lock.json
	@mkdir -p $(@D) && cp tests/livekit/viewer/package*.json $(@D)
	@if command -v npm >/dev/null; then cd $(@D) && npm ci --no-progress --no-audit --no-fund --loglevel error && touch .installed; fi

livekit: .venvs/livekit/.installed $(VIEWER)  ## avatars in rooms of LiveKit, with its SDK (LIVEKIT_URL= for a server of yours)
	.venvs/livekit/bin/python -m pytest -n 3 --dist worksteal -m livekit --timeout 300 tests/livekit

KILLS ?= 10
DRAINS ?= 10
livekit-gaps: .venvs/livekit/.installed $(VIEWER)  ## ms without a picture in livekit-client (Chromium) when a Worker is killed or drained, as JSON
	.venvs/livekit/bin/python -m tests.livekit.gaps --kills $(KILLS) --drains $(DRAINS)

pipecat: .venvs/pipecat/.installed  ## Pipecat bots as runtimes: real pipelines, killed and cut, and a WebRTC client
	.venvs/pipecat/bin/python -m pytest -n 3 --dist worksteal -m pipecat --timeout 900 tests/pipecat

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
	$(BIN)/pytest -m failover --timeout 240 --runs $(RUNS) -k "replaced_by_force and kill or missed_in_its_cell_alone" tests/failover

MINUTES ?= 10
SEED ?=
STORE ?= replicated
chaos: setup  ## a deployment under seeded faults (MINUTES=10, SEED=, STORE=cluster, HOSTILE=1; docs/internals/chaos.md)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --store $(STORE) $(if $(HOSTILE),--hostile) --quiet

HOURS ?= 1
SEEDS ?= 1
virtual: setup  ## the product on virtual time under seeded faults (HOURS=1, SEED=, SEEDS=1, SWARM=small or cells, APPEND=1; docs/internals/virtual-runs.md)
	$(BIN)/python -m tests.virtual --hours $(HOURS) $(if $(SEED),--seed $(SEED)) --seeds $(SEEDS) $(if $(SWARM),--swarm $(SWARM)) $(if $(APPEND),--append)

virtual-ci: setup  ## what CI runs of it: twenty short seeds, for at most three minutes
	$(BIN)/python -m tests.virtual --hours 0.1 --seed 1 --seeds 20 --cpu-max 90

KIND ?=
mutants: setup  ## break the source by machine, one thing at a time, and see what notices it (KIND=lua or python; goes on where it was)
	$(BIN)/python -m tests.mutation $(KIND)

spec: setup  ## TLC over spec/*.tla and its mutants; re-derives the state counts the tests assert (needs Java 11+)
	$(BIN)/python -m spec

spec-long: setup  ## the larger TLC configurations
	$(BIN)/python -m spec --long

evaluate: setup  ## the paper's evaluation into evaluation/results; QUICK=1 for a smoke run into results/quick
	$(BIN)/python -m evaluation all $(if $(QUICK),--quick)

walks: setup  ## files and entries of the four main paths through the source (ARCHITECTURE.md has the last table)
	$(BIN)/python -m tests.walks --json

EXAMPLES ?=
cli-page: setup  ## docs/reference/cli.md: the help of every verb (EXAMPLES=1 takes the examples anew, too)
	$(BIN)/python -m tests.cli_page $(if $(EXAMPLES),--examples)

dashboards: setup  ## deploy/grafana/dhsched.json, from the table of metrics
	$(BIN)/python -m tests.dashboards

upgrade: setup  ## a rolling upgrade under load, from the commit in tests/upgrade/BASE to this tree
	$(BIN)/pytest -s -m release tests/upgrade

image: setup  ## the image dhsched:VERSION for every role, on a base of its own (needs root, buildah and debootstrap)
	PYTHON=$(BIN)/python deploy/image/build

manifests: setup  ## render deploy/kubernetes with every overlay and validate it (needs kubectl); writes the operator's rules
	$(BIN)/python -m tests.manifests

typescript: setup  ## the package clients/typescript: install, build, test with a deployment in node and Chromium (needs node 20, npm)
	@command -v npm >/dev/null || { echo "make typescript needs node 20 or later with npm"; exit 1; }
	cd clients/typescript && npm ci --no-progress --loglevel error && npm run -s build && npm test --silent
	$(BIN)/pytest -m browser tests/browser/test_component.py -k package

AGAINST ?=
statements: setup  ## statements and public docstrings of src, per package (AGAINST=<revisions> beside today's)
	$(BIN)/python -m tests.statements $(if $(AGAINST),--against $(AGAINST))

clean:  ## remove what setup and the tests made
	rm -rf $(VENV) .venvs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spec/states evaluation/results/quick evaluation/results/.parts
