# Every command of the project. `make` alone lists them; ARGS passes more arguments on: make test ARGS="-k frame -x".

PYTHON ?= python3
ARGS   ?=
BIN    := .venv/bin
PYTEST := $(BIN)/python -m pytest

# Every process of the tests reads the same modules; compiling them anew each time takes longer than most tests.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache

.DEFAULT_GOAL := help
.PHONY: help setup java demo check test test-spark crash chaos etcd interop fuzz bench scenarios docs lock clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv with the pinned packages; the others do this first.
	@$(PYTHON) scripts/setup.py

# Spark and the official packages run on Java, so what may start them asks for it too.
java:
	@$(PYTHON) scripts/setup.py --java

demo: java ## Show what works today, on this machine, in less than a minute.
	@$(BIN)/python -m examples.demo $(ARGS)

check: setup ## Check format, lint, types, layers, links and generated files.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -q tests/unit/test_layers.py
	$(BIN)/python scripts/links.py
	$(BIN)/python scripts/sync_stubs.py --check
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/boards.py --check
	$(BIN)/python scripts/vendor.py --check
	$(BIN)/python scripts/translations.py --check
	$(BIN)/python scripts/lock.py --check

# Most tests wait most of the time, so there are more processes than cores; -n0 runs all in one. A test that takes five
# minutes hangs: its process is ended, and where it was is shown.
SIDE_BY_SIDE := $(if $(findstring no:xdist,$(ARGS)),,-n 4 --max-worker-restart 3)

TWO_WAYS := tests/unit/broker/test_send.py tests/integration/broker/test_scenarios_send.py tests/integration/auth/test_signed_sends.py \
	tests/unit/broker/test_pull.py tests/integration/broker/test_scenarios_pull.py

test: java ## Run every test that needs nothing but this machine, four at a time.
	-@$(PYTHON) scripts/setup.py --etcd # where it may not be installed, its tests are skipped and say so
	-@$(PYTHON) scripts/setup.py --promtool # the same
	-@$(PYTHON) scripts/setup.py --chromium # the same
	$(PYTEST) -m "not crash and not chaos and not interop and not long" -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true $(SIDE_BY_SIDE) $(ARGS)
ifeq ($(ARGS),) # what compiled code serves, once more without it
	PYROMQ_PURE=1 $(PYTEST) -q $(SIDE_BY_SIDE) $(TWO_WAYS)
endif

test-spark: java ## Run the whole Spark suite: killed executors and drivers, outages, a cluster of two workers; minutes.
	$(PYTEST) tests/spark tests/unit/spark $(ARGS)

crash: setup ## Kill writers and check that what they acknowledged is there; minutes.
	$(PYTEST) -m crash -o faulthandler_timeout=0 $(ARGS)

chaos: setup ## Break a group that fails over in every way; ARGS="--rounds 100 --seed 7 --faults stop -k three-etcd"; minutes.
	-@$(PYTHON) scripts/setup.py --etcd # where it may not be installed, its groups are skipped and say so
	$(PYTEST) tests/chaos -m chaos -n0 -s -o faulthandler_timeout=0 $(ARGS)

etcd: setup ## Run controllers on a real etcd of one and three members; installs it where that is allowed.
	@$(PYTHON) scripts/setup.py --etcd
	$(PYTEST) tests/integration/controller -m etcd $(ARGS)

interop: java ## Run the official brokers and clients against ours; downloads them once, minutes.
	$(PYTEST) tests/interop -m interop $(ARGS)

fuzz: setup ## Feed mutated bytes to every decoder, from the committed corpus.
	$(BIN)/python -m fuzz.run $(ARGS)

bench: java ## Print every figure the project quotes, next to its peer in the same run.
	$(BIN)/python -m bench.run $(ARGS)

scenarios: setup ## List the scenarios of docs/spec: covered, known differences, not covered.
	@$(BIN)/python scripts/scenarios.py $(ARGS)

# Material for MkDocs announces its successor at every build; a strict build is to be silent.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup ## Build the documents into site/, as strictly as MkDocs can; installs what that needs.
	$(BIN)/python scripts/links.py
	$(BIN)/python scripts/reference.py --check
	@$(PYTHON) scripts/setup.py --docs
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

lock: setup ## Make requirements.lock and that of docs/ anew from pyproject.toml; ARGS=--upgrade takes newer versions.
	$(BIN)/python scripts/lock.py $(ARGS)

clean: ## Remove .venv, caches and whatever else these commands made.
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
