# `make demo` and `make test` work on a fresh clone with Python (3.10 or newer) and make: each builds .venv when it must.
PYTHON ?= python3
BIN := .venv/bin
# What an installed package was built from: a change of it installs again, which compiles the kernel again.
BUILD := pyproject.toml setup.py $(wildcard src/evenhand/losses/kernels/*.c src/evenhand/losses/kernels/*.h)

# Threads that wait sleep: those that spin take the cores that other processes wait for.
export OMP_WAIT_POLICY ?= PASSIVE

# One thread per test process: two of them share the machine, and the one that is done takes over from the other.
TEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo test test-all test-lowest lint format docs clean

# A look at imbalanced digits, then four objectives compared on them; finished runs are kept for the next time.
demo: .venv/.package
	$(BIN)/evenhand inspect digits --imbalance exp:50
	$(BIN)/evenhand compare digits --imbalance exp:50 --seeds 8 --out runs/demo

test: lint
	$(TEST) -m "not slow"

# Where EVENHAND_DATA is set, a test that skips for want of what CONTRIBUTING.md lists fails. Random files are searched for longer.
# The second run is as on a processor with AVX2 and nothing newer: no test may hang on the numerics of one.
test-all: lint docs .venv/.notebooks
	EVENHAND_COMPLETE=$(EVENHAND_DATA) EVENHAND_FUZZ=100 $(TEST)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(TEST) -m "not slow" tests/test_examples.py tests/losses tests/metrics tests/models tests/training

# The tests with the lowest versions of the dependencies, in an environment of its own; PYTHON=python3.10 for the lowest Python.
test-lowest: .venv/.package
	$(PYTHON) -m venv .venv-lowest
	$(BIN)/python tools/lowest_versions.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-lowest/constraints.txt --editable . httpx hypothesis mpmath pandas pytest pytest-xdist torchmetrics
	OMP_NUM_THREADS=1 .venv-lowest/bin/pytest -n 2 --dist worksteal -m "not slow" tests/core tests/losses tests/metrics tests/models tests/objectives tests/runs tests/statistics

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The site, in build/site: every link inside it must lead somewhere. With --quiet, mkdocs would not count the warnings.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-lowest build dist src/*.egg-info src/evenhand/losses/kernels/*.so

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("evenhand needs Python 3.10 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv

.venv/.notebooks: .venv/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,notebooks]"
	touch $@

# The stamps are written last, so an install that was cut short is done again.
.venv/.package: $(BUILD) | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/.dev: $(BUILD) | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@ .venv/.package
