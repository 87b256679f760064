# On a fresh machine, in a fresh clone, `make demo` is all it takes. Nothing outside this directory changes.
#
#   PYTHON=python3.12    the Python to build .venv with (3.11 or newer)
#   BUDGET=30m           how long the demo's study may take
#   TORCH_CPU_INDEX=URL  where PyTorch's CPU build comes from, if pip's configuration does not lead to one

PYTHON ?= python3
BUDGET ?= 10m
BIN := .venv/bin

.PHONY: help demo test gate lint docs bench-client venv clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo   tune a tiny model on this machine and write demo/launch.sh (BUDGET=$(BUDGET))'
	@echo 'make test   lint, then all tests; those with a real vLLM one after the other'
	@echo 'make gate   launch every kind of configuration that the check refuses, not only 21 of them'
	@echo 'make lint   style, types, layers, dependencies'
	@echo 'make bench-client   what a token costs the load generator, beside others (about 5 minutes)'
	@echo 'make docs   the documentation, as web pages in site/'
	@echo 'make venv   .venv with autotune, vLLM for CPUs and the development tools'
	@echo 'make clean  remove all of that'

demo: .venv/.installed demo/model/tiny_model.json
	$(BIN)/autotune run demo/model --study quickstart --db demo/quickstart.db --budget $(BUDGET)
	$(BIN)/autotune best --db demo/quickstart.db --export demo/launch.sh

test: lint demo/model/tiny_model.json
	$(BIN)/pytest -m "not e2e and not browser" -n 3 --dist worksteal
	$(BIN)/pytest -m browser
	$(BIN)/pytest -m e2e

# 11 s of a core for each of 35 launches, two at a time.
gate: .venv/.installed-dev
	AUTOTUNE_LAUNCH_ALL=1 $(BIN)/pytest tests/e2e/test_real_validator.py

lint: .venv/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

# Material tells at each build that a successor is being written.
docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Quiet, with two cores at least. The first time it installs guidellm into benchmarks/.venv.
bench-client: .venv/.installed
	$(BIN)/python benchmarks/client.py

venv: .venv/.installed-dev

clean:
	rm -rf .venv demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	find autotune tests tools -name __pycache__ -prune -exec rm -rf {} +

# The stamps: an environment is made again only when what it is made from has changed.
.venv/.installed: pyproject.toml tools/install.py | $(BIN)/python
	$(BIN)/python tools/install.py
	touch $@

.venv/.installed-dev: pyproject.toml | .venv/.installed
	$(BIN)/python -m pip install --group test --group lint --group docs
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("autotune needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": say, for example, make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

demo/model/tiny_model.json: tools/make_tiny_model.py | .venv/.installed
	$(BIN)/python tools/make_tiny_model.py demo/model
	touch $@
