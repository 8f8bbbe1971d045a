# make demo       a fresh machine to a trained GPT and a sample of its text, in a few minutes
# make test       lint, types and tests
# make test-all   the same, with the tests that take minutes each
# make studio     the studio's pages, built anew where a source has changed
# make clean      remove what these made (runs stay)
#
# PYTHON=python3.13 make demo   chooses the interpreter (3.11 or newer)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup demo studio test test-all lint clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 7

# The stamp is newer than what it was made from, so set-up runs once and again after a change.
setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Partwise needs Python 3.11 or newer, and $(PYTHON) is older: PYTHON=python3.12 make setup"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/partwise train shakespeare

studio: setup
	$(BIN)/python hatch_build.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# One thread a process: the processes are as many as there are cores. Where the studio's pages cannot
# be built, the tests that need them are skipped and say so.
test: lint
	@$(BIN)/python hatch_build.py || true
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

test-all: lint
	@$(BIN)/python hatch_build.py || true
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m 'long or not long'

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
