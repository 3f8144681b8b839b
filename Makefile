# make train [ARGS="algo=grpo reward=binary"]   the main job; on a machine without a GPU, the embedded default
# make test  [ARGS="tests/objective"]           the test suite
# make lint
# Each sets up what it needs: a virtual environment in .venv, with vLLM where there is a GPU.

GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
REQUIREMENTS := $(if $(filter-out 0,$(GPU)),requirements.txt,requirements-cpu.txt)
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test lint
train: .venv/ready
	$(BIN)/python train.py $(ARGS)

test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

.venv/ready: $(REQUIREMENTS) pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r $(REQUIREMENTS)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
