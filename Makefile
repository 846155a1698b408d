# Each target sets up everything it needs in .venv, with whichever of Python 3.11, 3.12 and 3.13 is there.
#
#   make demo     data that ships → policies → the simulator → a page
#   make check    lint, types and the fast tests: before every commit, under 90 s on two quiet cores
#   make test     lint, types and every test: what CI runs, under 10 minutes on two quiet cores
#   make docs     the site, in site/; the tutorials' code is run, a warning is an error
#   make dist     sdist and wheel in dist/; both are tried outside the checkout on every Python found
#   make research  the studies around the paper: their tests, also slow ones, and their figures in small
#   make bench    every agent in minutes, on data that ships
#   make matrix   installs, tests and the demo on each Python, oldest and newest dependencies: benchmarks/install_matrix.py
#   make constraints   the newest versions of everything, written to constraints.txt
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$python && break; done)
FOUND = $(shell for python in python3.11 python3.12 python3.13; do $$python -c "" 2>/dev/null && echo $$python; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

# The fast tests are whole files: those of the lower layers, and those that hold the house together. They neither train a
# network to the end nor play episodes nor start a browser. `make test` is what decides.
FAST := tests/test_layers.py tests/test_records.py tests/test_files.py tests/test_api.py tests/test_cli.py \
        tests/test_committed_files.py tests/data tests/evaluation tests/policies

.PHONY: test check research demo bench lint docs dist matrix constraints clean

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found: name one, make PYTHON=/path/to/python3.12" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[ray,minari,onnx,cone,tensorboard,trees,dev]' --constraint constraints.txt
	$(BIN)/pdocrl install bullet
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]' --constraint constraints.txt
	touch $(DOCS_STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src research tests benchmarks
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(FAST)

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 20

research: lint
	$(BIN)/python -m pytest tests/research
	$(BIN)/python -m research cloning rate lucky --logs 1 --out runs/research

demo: $(STAMP)
	$(BIN)/pdocrl demo

bench: $(STAMP)
	$(BIN)/pdocrl bench smoke

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m mkdocs build --strict --quiet

# Nothing of the checkout may be needed: wheel and sdist are installed and used in a folder of their own, on every Python
# found; the tests of a checkout are another target's.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	set -e; outside=$$(mktemp -d); trap 'rm -rf "$$outside"' EXIT; unset PYTHONPATH; here="$(CURDIR)"; cd "$$outside"; \
	for python in $(or $(FOUND),$(PYTHON)); do \
	  $$python -m venv --clear venv; \
	  venv/bin/python -m pip install --quiet "$$here"/dist/*.whl --constraint "$$here/constraints.txt"; \
	  venv/bin/pdocrl install bullet; venv/bin/pdocrl demo --steps 200 --episodes 2; \
	  venv/bin/python -m pip install --quiet --no-deps --force-reinstall "$$here"/dist/*.tar.gz; \
	  venv/bin/pdocrl solve inventory --gamma 0.97 --limit "stockout<=0.02" --out policy; \
	  echo "$$python: wheel and sdist work"; \
	done

matrix: $(STAMP)
	$(BIN)/python benchmarks/install_matrix.py

# Made with the oldest Python, whose versions install on all.
constraints:
	set -e; outside=$$(mktemp -d); trap 'rm -rf "$$outside"' EXIT; \
	$(PYTHON) -m venv "$$outside/venv"; \
	"$$outside/venv/bin/python" -m pip install --quiet \
	  '.[ray,minari,onnx,cone,tensorboard,trees,mujoco,safety-gymnasium,highway,icu,docs,dev]' 'gymnasium==0.28.1'; \
	"$$outside/venv/bin/python" -m pip freeze --exclude pdocrl | sort --ignore-case > constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache build dist site
