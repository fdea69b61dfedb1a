# Every target sets up what is missing: the virtual environment, then the pinned packages.

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
# threads that spin while they wait make torch several times slower on a machine that is shared
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: install fix check test test-all demo pipeline ui

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@bash scripts/install.sh $(VENV)
	@touch $(STAMP)

fix: $(STAMP)
	ruff check --fix .
	ruff format .

check: $(STAMP)
	ruff check .
	ruff format --check .
	mypy
	pydoclint cog
	PYTHONPATH=. lint-imports

test: $(STAMP)
	pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu"

test-all: $(STAMP)
	pytest -n 2 --dist loadfile --no-loadscope-reorder

demo: $(STAMP)
	cog init && cog demo

pipeline: $(STAMP)
	dvc repro

ui: $(STAMP)
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow ui --workers 1 --backend-store-uri sqlite:///mlflow.db
