# Every target sets up what it needs. PYTHON picks the interpreter (3.11 to 3.13), EXTRAS what is installed.
PYTHON ?= python3
VENV ?= .venv
GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
EXTRAS ?= $(if $(filter-out 0,$(GPU)),cpu$(comma)cuda$(comma)dev,cpu$(comma)nvrtc$(comma)dev)
GROUP ?= quick

comma := ,
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

# No telemetry; PoCL's worker threads stay on their cores, without which timings wander.
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export POCL_AFFINITY := 1

.PHONY: setup sweep test lint format
.DELETE_ON_ERROR:

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1), expected Python 3.11 to 3.13; set PYTHON=python3.12" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	    { echo "error: $(PYTHON) cannot make a virtual environment; install its venv package (Debian: python3-venv)" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

sweep: $(STAMP)
	$(BIN)/python -m flows.golden_sweep --group $(GROUP) $(if $(filter-out 0,$(CLEAN)),--clean)

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy emmy tasks flows

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
