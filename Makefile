# Two commands do all the set-up: `make repro` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Three processes on two cores, for many tests wait for what they started; who is done first takes from the others.
TEST := python -m pytest -n 3 --dist worksteal
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: repro test test-fast check format bench-gpu

repro: $(READY)  ## environment, then the whole pipeline
	@dvc repro
	@python -m tokenmill summary

test: $(READY)  ## the whole test suite
	@$(TEST)

test-fast: $(READY)  ## without the tests that run whole pipelines
	@$(TEST) -m "not slow"

check: $(READY)  ## format, lint, types, spelling, generated documents
	@ruff format --check .
	@ruff check .
	@pyright
	@codespell
	@python -m tokenmill params --check docs/parameters.md

format: $(READY)  ## put code and generated documents into shape
	@ruff format .
	@ruff check --fix .
	@python -m tokenmill params --write docs/parameters.md

bench-gpu: $(READY)  ## every figure that needs a GPU: make bench-gpu NANOGPT=checkout TEXT=file
	@python -m bench.gpu $(if $(NANOGPT),--nanogpt $(NANOGPT)) $(if $(TEXT),--text $(TEXT))

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"error: TokenMill needs Python 3.11 or newer, not {sys.version.split()[0]}; make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the pinned dependencies into .venv (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
