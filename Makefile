# Every target sets up what it needs: `make demo` and `make test` are the only commands a fresh clone takes.

PYTHON ?= python3
ARGS ?=
VENV := .venv
PROTO_VENV := .venv-proto
LOCK_VENV := .venv-lock
TRAINER_VENVS := .venv-trainers
ENGINE_VENVS := .venv-engines
ENGINES := $(notdir $(patsubst %/requirements.txt,%,$(wildcard tests/engines/*/requirements.txt)))
# One that needs another Python names it in a file, and is made where it is asked for: make trainers TRAINERS=skyrl
TRAINERS ?= $(filter-out $(notdir $(patsubst %/python,%,$(wildcard tests/trainers/*/python))),\
	$(notdir $(patsubst %/requirements.txt,%,$(wildcard tests/trainers/*/requirements.txt))))
BUF := proto/node_modules/.bin/buf
PROTOBUF_RELEASES := $(shell cat proto/protobuf-releases.txt)
PROTO_OUT ?= .

# REAL=1 is how CI asks: a missing real part is then a failure, not a skip.
REQUIRE_REAL := $(filter-out 0,$(REAL))

PIP := -m pip --quiet --disable-pip-version-check

define REQUIRE_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "satwatch needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	echo "Name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo bench test lint parts trainers engines generated screenshots proto proto-baseline lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.ready ## Create .venv from the lock, satwatch in it as editable

demo: setup ## Train a small policy asynchronously, guarded by a sidecar (ARGS="--lag 4")
	@$(VENV)/bin/satwatch demo $(ARGS)

bench: setup ## Measure a round trip, the exact quantile, the probe, the dashboard, and a step of TRL with the hook
	@$(MAKE) --no-print-directory $(TRAINER_VENVS)/trl/.ready || echo "TRL could not be installed: its part is left out"
	@$(VENV)/bin/satwatch bench $(ARGS)

test: setup ## Run the tests (REAL=1 fails where a real part is missing; ARGS="tests/unit -k gate")
	@$(MAKE) --no-print-directory --keep-going parts $(if $(REQUIRE_REAL),trainers engines) || \
		{ test -z "$(REQUIRE_REAL)" && echo "make parts failed: the tests that need them are skipped"; }
	@$(VENV)/bin/pytest $(ARGS)

lint: setup ## Check style, types, layers and the wire contract
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	@if command -v npm >/dev/null || test -n "$(REQUIRE_REAL)"; then $(MAKE) --no-print-directory lint-proto; \
	else echo "npm is missing: buf does not check proto/"; fi

.PHONY: lint-proto
lint-proto: $(BUF)
	$(BUF) lint proto
	$(BUF) breaking proto --against proto/satwatch.v1.binpb

parts: $(PROTO_VENV)/.ready .protobuf/.ready ## Fetch what only tests need: protoc, and protobuf's releases side by side

trainers: $(TRAINERS:%=$(TRAINER_VENVS)/%/.ready) ## Install the real trainers, each in an environment of its own

engines: $(ENGINES:%=$(ENGINE_VENVS)/%/.ready) ## Install the real rollout engines, and make the tiny models that they serve

generated: setup ## Write again what comes from code: docs/metrics.md, the Prometheus rules, the Grafana dashboard
	@$(VENV)/bin/python -m satwatch.server.metrics_page > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md
	@$(VENV)/bin/python -m satwatch._dashboard.prometheus.generate
	@$(VENV)/bin/python -m satwatch._dashboard.grafana.generate

screenshots: setup ## Take the README's pictures of the dashboard anew, from a demo, with Chromium
	@$(VENV)/bin/python docs/figures/dashboard.py

proto: $(PROTO_VENV)/.ready ## Generate satwatch/v1 from proto/
	@$(PROTO_VENV)/bin/python -m grpc_tools.protoc -I proto \
		--python_out=$(PROTO_OUT) --pyi_out=$(PROTO_OUT) --grpc_python_out=$(PROTO_OUT) proto/satwatch/v1/satwatch.proto

proto-baseline: $(BUF) ## Make today's contract the one that `buf breaking` defends (at a release)
	$(BUF) build proto --exclude-source-info -o proto/satwatch.v1.binpb

# Pins that are still possible stay. The resolver names the build of torch that it found, such as +cpu; the lock leaves
# that choice to the machine.
lock: ## Resolve requirements.lock anew (ARGS="--upgrade-package ruff")
	@$(REQUIRE_PYTHON)
	@$(PYTHON) -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python $(PIP) install pip-tools==7.6.2
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK_VENV)/bin/pip-compile $(ARGS) --quiet --allow-unsafe --strip-extras \
		--extra cli --extra server --extra postgres --extra probe --extra dashboard --extra dev \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	@sed -i.bak 's/^\(torch==[0-9.]*\)+[a-z0-9]*/\1/' requirements.lock && rm requirements.lock.bak

clean: ## Remove everything that make has made
	rm -rf $(VENV) $(PROTO_VENV) $(LOCK_VENV) $(TRAINER_VENVS) $(ENGINE_VENVS) .protobuf proto/node_modules build dist
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find satwatch tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: an environment is made again when what it was made from has changed.
$(VENV)/.ready: requirements.lock pyproject.toml
	@echo "Setting up $(VENV) from requirements.lock: once, and torch is the large part."
	@$(REQUIRE_PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python $(PIP) install -r requirements.lock
	@$(VENV)/bin/python $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(PROTO_VENV)/.ready: proto/requirements.txt
	@echo "Setting up $(PROTO_VENV) from $<."
	@$(REQUIRE_PYTHON)
	@$(PYTHON) -m venv $(PROTO_VENV)
	@$(PROTO_VENV)/bin/python $(PIP) install --only-binary :all: -r $<
	@touch $@

# What is to come without its dependencies (GPU kernels, engines) is in no-deps.txt.
$(TRAINER_VENVS)/%/.ready: tests/trainers/%/requirements.txt pyproject.toml
	@echo "Setting up $(@D) from $<."
	@rm -rf $(@D)
	@$$(cat tests/trainers/$*/python 2>/dev/null || echo $(PYTHON)) -m venv $(@D)
	@test ! -e tests/trainers/$*/no-deps.txt || \
		$(@D)/bin/python $(PIP) install --no-deps -r tests/trainers/$*/no-deps.txt
	@$(@D)/bin/python $(PIP) install -r $<
	@$(@D)/bin/python $(PIP) install --no-deps --editable .
	@touch $@

# An engine's venv is served over HTTP; satwatch is in it for what attaches in process. cpu.py makes the engine run without a GPU.
$(ENGINE_VENVS)/%/.ready: tests/engines/%/requirements.txt tests/engines/%/no-deps.txt tests/engines/%/cpu.py tests/engines/%/models.py pyproject.toml
	@echo "Setting up $(@D) from $<: once, and some gigabytes."
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(PIP) install -r $<
	@$(@D)/bin/python $(PIP) install --no-deps -r tests/engines/$*/no-deps.txt
	@$(@D)/bin/python $(PIP) install --no-deps --editable .
	@$(@D)/bin/python tests/engines/$*/cpu.py
	@$(@D)/bin/python tests/engines/$*/models.py $(ENGINE_VENVS)/models
	@touch $@

.protobuf/.ready: proto/protobuf-releases.txt | $(VENV)/.ready
	@echo "Fetching protobuf $(PROTOBUF_RELEASES)."
	@rm -rf .protobuf && mkdir .protobuf
	@for release in $(PROTOBUF_RELEASES); do \
		$(VENV)/bin/python $(PIP) install --no-deps --target .protobuf/$$release protobuf==$$release || exit 1; done
	@touch $@

$(BUF): proto/package-lock.json
	@echo "Fetching buf."
	@cd proto && npm ci --loglevel=error
	@touch $@
