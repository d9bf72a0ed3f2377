# Two commands do all the set-up: `make repro` and `make test`.
PYTHON ?= python3
FAULTS ?= 300
SEED ?= 0
BIN := .venv/bin
READY := .venv/.ready
READY_TO_TEST := .venv/.ready-to-test
LOG := .venv/install.log
# Three processes on two cores, for many tests wait for what they started; who is done first takes from the others.
TEST := python -m pytest -n 3 --dist worksteal
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: repro test test-fast check format faults bench-gpu

repro: $(READY)  ## environment, then the whole pipeline
	@dvc repro
	@python -m tokenmill summary

test: $(READY_TO_TEST)  ## the whole test suite
	@$(TEST)

test-fast: $(READY_TO_TEST)  ## without the tests that run whole pipelines
	@$(TEST) -m "not slow"

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
	@python -m tests.faults --count $(FAULTS) --seed $(SEED)

bench-gpu: $(READY_TO_TEST)  ## every figure that needs a GPU: make bench-gpu NANOGPT=checkout TEXT=file
	@python -m bench.gpu $(if $(NANOGPT),--nanogpt $(NANOGPT)) $(if $(TEXT),--text $(TEXT))

# What the pipeline needs; a browser, a cluster, S3 and the checkers come with the tests.
$(READY): EXTRAS :=
$(READY_TO_TEST): EXTRAS := [dev]
$(READY) $(READY_TO_TEST): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 15) else f"error: TokenMill needs Python 3.11 to 3.14, not {sys.version.split()[0]}; make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the pinned packages into .venv (once)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
		-c constraints.txt -e '.$(EXTRAS)' >$(LOG) 2>&1 & \
	pip=$$!; seconds=0; \
	while kill -0 $$pip 2>/dev/null; do \
		sleep 1; seconds=$$((seconds + 1)); \
		if [ -t 1 ]; then printf '\r\033[K  %s s, %s MB  %s' $$seconds $$(du -sm .venv | cut -f1) "$$(grep -oE "^ *(Collecting|Downloading|Installing|Building).*" $(LOG) | tail -n 1 | cut -c 1-55)"; \
		elif [ $$((seconds % 30)) = 0 ]; then echo "  $$seconds s, $$(du -sm .venv | cut -f1) MB"; fi; \
	done; \
	if [ -t 1 ]; then printf '\r\033[K'; fi; \
	wait $$pip || { tail -n 20 $(LOG); echo "error: pip failed; all it said is in $(LOG)"; exit 1; }
	@touch $(READY) $@
