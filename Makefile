# Each target sets up everything it needs in .venv, on a Linux machine with Python 3.11.
#
#   make demo     data that ships → policies → the simulator → a page
#   make check    lint, types and the fast tests: before every commit, under 90 s on two quiet cores
#   make test     lint, types and every test: what CI runs, under 10 minutes on two quiet cores
#   make docs     the site, in site/; the tutorials' code is run, a warning is an error
#   make dist     sdist and wheel in dist/; the wheel is tried in an empty environment elsewhere
#   make bench    every agent in minutes, on data that ships
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

# The fast tests are whole files: those of the lower layers, and those that hold the house together. They neither train a
# network to the end nor play episodes nor start a browser. `make test` is what decides.
FAST := tests/test_layers.py tests/test_records.py tests/test_files.py tests/test_api.py tests/test_cli.py \
        tests/test_committed_files.py tests/bench/test_committed.py tests/data tests/scores tests/policies

.PHONY: test check demo bench lint docs dist clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[bullet,ray,minari,onnx,cone,tensorboard,dev]' --constraint constraints.txt
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]' --constraint constraints.txt
	touch $(DOCS_STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(FAST)

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

demo: $(STAMP)
	$(BIN)/pdocrl demo

bench: $(STAMP)
	$(BIN)/pdocrl bench smoke

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m mkdocs build --strict --quiet

# Nothing of the checkout may be needed: the wheel is installed and run in a folder of its own.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	set -e; elsewhere=$$(mktemp -d); trap 'rm -rf "$$elsewhere"' EXIT; \
	wheel=$$(ls "$(CURDIR)"/dist/*.whl); \
	$(BIN)/python -m venv "$$elsewhere/venv"; \
	"$$elsewhere/venv/bin/python" -m pip install --quiet "$$wheel[bullet]" --constraint constraints.txt; \
	cd "$$elsewhere" && env -u PYTHONPATH venv/bin/pdocrl demo --steps 200 --episodes 2

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache build dist site
