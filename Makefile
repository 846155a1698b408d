# make test · make demo · make bench: each sets up everything it needs in .venv, on a machine with Python 3.11.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: test demo bench lint clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[bullet,ray,minari,onnx,tensorboard,dev]' --constraint constraints.txt
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

demo: $(STAMP)
	$(BIN)/pdocrl demo

bench: $(STAMP)
	$(BIN)/pdocrl bench smoke

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache
