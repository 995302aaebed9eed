.DEFAULT_GOAL := help
.PHONY: bench bench-profile soak help run demo test test-full test-hitl-gate proto proto-check \
	proto-baseline contracts breaking lint \
	format lock clean install install-dev

BIN := .venv/bin
OPENAPI := PYTHONPATH=.:gen/python $(BIN)/python -m tools.openapi
# The environment's own Python once it exists; else the first one here that was compiled with profiles
# of itself, which is faster; else any that is supported.
CANDIDATES := python3.11 python3.12 python3 /usr/bin/python3.11 /usr/bin/python3.12
PYTHON ?= $(or $(wildcard $(BIN)/python),$(shell for need in fast any; do for name in $(CANDIDATES); do \
	$$name tools/interpreter.py $$need 2>/dev/null && echo $$name && exit; done; done),python3)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: install ## install if needed, then start everything: REST on :8080, gRPC on :8081
	@$(BIN)/counterfoil run

demo: install ## show a session that waits for a human, survives a kill and continues
	@$(BIN)/counterfoil demo

test: install-dev lint proto-check ## lint and all quick tests, as CI runs them
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "not full"

test-full: install-dev lint proto-check ## the same with the slow and destructive tests
	@$(BIN)/python -m pytest -n auto --dist worksteal

test-hitl-gate: install-dev ## only the tests of the human-in-the-loop gate
	@$(BIN)/python -m pytest tests/gate

bench: install-dev ## measure everything (ROWS=gate,text for some, SCALE=0.1 for quicker)
	@$(BIN)/python -m bench --rows "$(ROWS)" --scale $(or $(SCALE),1)

bench-profile: install-dev ## write flame graphs of the server to bench/profiles
	@$(BIN)/python -m bench.profile

soak: install-dev ## 1,000 streams and 64 writers while every process is killed (ARGS=--help)
	@$(BIN)/python -m tests.soak $(ARGS)

lint: install-dev ## ruff, pyright, import contracts, buf lint and buf breaking
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "run: make format"; exit 1; }
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	@PYTHONPATH=.:gen/python $(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.proto lint
	@$(BIN)/python -m tools.proto breaking
	@$(OPENAPI) breaking

format: install-dev ## sort imports and format the code
	@$(BIN)/ruff check --quiet --select I --fix
	@$(BIN)/ruff format

proto: install-dev ## write gen/python and gateway/openapi.json from the contracts
	@$(BIN)/python -m tools.proto
	@$(BIN)/python -m tools.client
	@$(OPENAPI)

proto-check: install-dev ## fail when gen/python or gateway/openapi.json is not what the contracts say
	@$(BIN)/python -m tools.proto --check
	@$(BIN)/python -m tools.client --check
	@$(OPENAPI) --check

proto-baseline: install-dev ## accept the contracts of now as what must not break
	@$(BIN)/python -m tools.proto baseline
	@$(OPENAPI) baseline

contracts: install-dev ## write dist/contracts/counterfoil.binpb: the contracts for any language
	@$(BIN)/python -m tools.proto bundle

breaking: install-dev ## compare the contracts with their baselines, for gRPC and for REST
	@$(BIN)/python -m tools.proto breaking
	@$(OPENAPI) breaking

lock: install-dev ## write the lock files again (UPGRADE=--upgrade for newer versions)
	@$(BIN)/python -m tools.lock $(UPGRADE)

clean: ## remove builds and caches (not .venv, not the data in .counterfoil)
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

install:
	@$(PYTHON) -m tools.install

install-dev:
	@$(PYTHON) -m tools.install --dev
