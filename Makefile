# make train [ARGS="algo=grpo reward=binary"]   the main job; on a machine without a GPU, the embedded default
# make check [ARGS="tests/objective"]           the fast tests, what one runs between two edits
# make test  [ARGS="tests/objective"]           all tests
# make lint                                     style and types: ruff, then mypy
# Each sets up what it needs: a virtual environment in .venv, with vLLM where there is a GPU.

GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
REQUIREMENTS := $(if $(filter-out 0,$(GPU)),requirements.txt,requirements-cpu.txt)
PYTHON ?= python3
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: train check test lint
train: .venv/ready
	$(BIN)/python train.py $(ARGS)

check: .venv/ready
	$(PYTEST) -m "not slow and not slurm and not gpu" $(ARGS)

test: .venv/ready
	$(PYTEST) $(ARGS)

lint: .venv/ready
	$(BIN)/python -m ruff check . && $(BIN)/python -m ruff format --check . && $(BIN)/python -m mypy

.venv/ready: $(REQUIREMENTS) constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r $(REQUIREMENTS)
	touch $@
