# vgpumgr: every target sets up what it needs (Debian packages as root, then .venv); 'make' lists the targets.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# The lab boots a kernel, benches measure, browser tests need a browser: each has its own target.
APART := --ignore=tests/lab --ignore=tests/bench --ignore=tests/browser

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types layers unit bench serve openapi docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install what is missing: Debian packages (as root) and the virtual environment
	@./.ci/setup.sh

demo: setup ## the whole journey on a simulated host, through the REST API
	@$(BIN)/vgpumgr demo

serve: setup ## the demo, left running, with the address of the API documentation
	@$(BIN)/vgpumgr demo --keep

test: setup ## everything: linters, types, layers, then all tests
	@$(MAKE) --no-print-directory lint types layers
	@$(PYTEST) $(APART)

lint: setup ## ruff: style and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup ## mypy --strict
	@$(BIN)/mypy --strict

layers: setup ## import-linter: imports go down only
	@$(BIN)/lint-imports

unit: setup ## the unit tests alone
	@$(PYTEST) tests/unit

bench: setup ## speed and memory, as ratios measured in one run
	@$(PYTEST) tests/bench --capture=no

openapi: setup ## write api/openapi.yaml anew from the code
	@$(BIN)/python -m vgpumgr_api.openapi api/openapi.yaml

docs: setup ## write docs/reference/cli.md anew from the commands
	@$(BIN)/python -m vgpumgr.cli.reference > docs/reference/cli.md

clean: ## remove what make made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

-include tests/lab/lab.mk
