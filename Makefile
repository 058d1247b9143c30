# Fleet Manager SLURM satellite. `make` lists the targets; `make demo` and `make test` set everything up by themselves.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
LAB := PYTHONPATH="$(CURDIR)/deployment/lab" $(PY)
LAB_DIR ?= .lab/site
LAB_ARGS ?=
T ?=

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z_-]+:.*##/ {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Begin here
.PHONY: demo test
demo: root setup ## Bring up a real site, adopt two devices, refuse a third, prove it, and take everything down
	@$(LAB) -m fmlab.demo

test: root setup ## Run every test, on real servers that the tests bring up (T=path for a part)
ifeq ($(strip $(T)),)
	@$(MAKE) --no-print-directory check
	@deployment/setup/run-tests
else
	@$(PY) -m pytest $(T)
endif

##@ The site in a box
.PHONY: lab-up lab-down
lab-up: root setup ## Start the lab (LAB_ARGS="--suite trixie --devices 5 --strict") and say what to try next
	@$(LAB) -m fmlab.site up $(LAB_DIR) $(LAB_ARGS)

lab-down: root setup ## Stop every process of the lab (LAB_ARGS=--purge forgets its state)
	@$(LAB) -m fmlab.site down $(LAB_DIR) $(LAB_ARGS)

##@ Quick checks, offline
.PHONY: check lint typecheck imports test-unit format
check: lint typecheck imports test-unit ## Lint, types, layers and unit tests: what every commit passes

lint: setup ## Lint and formatting
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . > /dev/null || { echo "run: make format"; exit 1; }

typecheck: setup ## Strict types
	@.venv/bin/mypy

imports: setup ## The layers of the house
	@.venv/bin/lint-imports --no-logo | tail -n 12

test-unit: setup ## Unit tests: no I/O
	@$(PY) -m pytest -q -n 2 tests/unit

format: setup ## Format, and mend what can be mended without thought
	@.venv/bin/ruff check -q --fix . ; .venv/bin/ruff format -q .

##@ Parts of the tests
.PHONY: test-clients test-workflows test-replay test-integration cov
test-clients: setup ## Clients against recorded answers and real servers
	@$(PY) -m pytest tests/clients

test-workflows: setup ## Workflows on the time-skipping server and on a real dev server
	@$(PY) -m pytest tests/workflows

test-replay: setup ## Recorded histories against the present code
	@$(PY) -m pytest tests/replay

test-integration: setup ## Everything together: lab, hub, and adoptions on a whole site
	@$(PY) -m pytest tests/integration

cov: setup ## Unit, workflow and replay tests with branch coverage
	@$(PY) -m pytest -q -n 2 --cov --cov-report=term-missing:skip-covered tests/unit tests/workflows tests/replay

##@ Generated files
.PHONY: lock histories reviewable
lock: setup ## Resolve requirements.lock anew
	@.venv/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --group dev pyproject.toml -o requirements.lock
	@echo uv==$$(.venv/bin/uv --version | cut -d' ' -f2) | .venv/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header - -o deployment/setup/uv.lock

histories: setup ## Record the replay histories anew, after a change of command order that is guarded by a patch
	@$(PY) -m pytest -q tests/workflows --record-histories

reviewable: format check ## Regenerate what is generated, then check

##@ Set-up
.PHONY: root setup
root:
	@[ "$$(id -u)" = 0 ] || { echo "SLURM runs jobs as several users, so this needs root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

setup:
	@deployment/setup/venv
