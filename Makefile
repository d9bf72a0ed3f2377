# Two commands do all the set-up: `make repro` and `make test`.
PYTHON ?= python3
FAULTS ?= 300
SEED ?=
VENV ?= .venv
# The pinned PyTorch, or another that pyproject.toml allows: make TORCH=2.12.1 repro
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
OLDEST_TORCH := $(shell sed -n 's/.*"torch>=\([0-9.]*\),.*/\1/p' pyproject.toml)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
LOG := $(VENV)/install.log
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off
SELDOM := /(tests?|transformers/models|moto|ray)/
# Three processes on two cores, for many tests wait for what they started; who is done first takes from the others.
TEST := python -m pytest -n 3 --dist worksteal $(if $(SEED),--seed $(SEED) --hypothesis-seed $(SEED))
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: repro test test-slow test-oldest-torch check format faults bench-gpu

repro: $(READY)  ## environment, then the whole pipeline
	@dvc repro
# DVC skips `report` where its inputs are as recorded: its times may be another machine's, and the refs another run's
	@dvc repro -q -sf report
	@python -m tokenmill summary

test: $(READY_TO_TEST)  ## the tests but the slow ones; ALL=1: all; SEED=7: in another order, with other examples
	@$(TEST) $(if $(ALL),,-m "not slow")

test-slow: $(READY_TO_TEST)  ## those that take long: experiments, kills, browsers, compilers, benchmarks
	@$(TEST) -m slow

test-oldest-torch:  ## all with the lowest PyTorch that pyproject.toml allows, in .venv-oldest
	@$(MAKE) VENV=.venv-oldest TORCH=$(OLDEST_TORCH) ALL=1 test

check: $(READY_TO_TEST)  ## format, lint, types, spelling, generated documents
	@ruff format --check .
	@ruff check .
	@pyright
	@codespell
	@python -m tokenmill params --check docs/parameters.md

format: $(READY_TO_TEST)  ## put code and generated documents into shape
	@ruff format .
	@ruff check --fix .
	@python -m tokenmill params --write docs/parameters.md

faults: $(READY_TO_TEST)  ## provoke faults and print how they ended: make faults FAULTS=2000 SEED=1
	@python -m tests.faults --count $(FAULTS) --seed $(or $(SEED),0)

bench-gpu: $(READY_TO_TEST)  ## every figure that needs a GPU: make bench-gpu NANOGPT=checkout TEXT=file
	@python -m bench.gpu $(if $(NANOGPT),--nanogpt $(NANOGPT)) $(if $(TEXT),--text $(TEXT))

# What the pipeline needs; a browser, a cluster, S3 and the checkers come with the tests.
$(READY): EXTRAS :=
$(READY_TO_TEST): EXTRAS := [dev]
# The pip that Python brings may take twice as long. pip compiles on one core, compileall on all; it fails where a package
# has a file that is no Python of this version. What is mostly never imported is compiled when it is.
$(READY) $(READY_TO_TEST): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 15) else f"error: TokenMill needs Python 3.11 to 3.14, not {sys.version.split()[0]}; make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt >$(VENV)/constraints.txt
	@echo "installing the pinned packages into $(VENV) (once)"
	@{ $(PIP) -c $(VENV)/constraints.txt pip; \
		$(PIP) --no-compile -c $(VENV)/constraints.txt -e '.$(EXTRAS)' && \
		{ $(BIN)/python -m compileall -qq -j 0 -x '$(SELDOM)' $(VENV)/lib || true; }; } >$(LOG) 2>&1 & \
	pip=$$!; seconds=0; \
	while kill -0 $$pip 2>/dev/null; do \
		sleep 1; seconds=$$((seconds + 1)); \
		if [ -t 1 ]; then printf '\r\033[K  %s s, %s MB  %s' $$seconds $$(du -sm $(VENV) | cut -f1) "$$(grep -oE "^ *(Collecting|Downloading|Installing|Building).*" $(LOG) | tail -n 1 | cut -c 1-55)"; \
		elif [ $$((seconds % 30)) = 0 ]; then echo "  $$seconds s, $$(du -sm $(VENV) | cut -f1) MB"; fi; \
	done; \
	if [ -t 1 ]; then printf '\r\033[K'; fi; \
	wait $$pip || { tail -n 20 $(LOG); echo "error: pip failed; all it said is in $(LOG)"; exit 1; }
	@touch $(READY) $@
