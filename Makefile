# Everything runs in .venv. The first run compiles llama.cpp, which takes a few minutes; the next ones start at once.
# make VENV=path uses an environment of yours, with the llama-cpp-python that is in it; make clean leaves it alone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ROOMS  := cli common engine grammars logprobs presets recover samplers

.PHONY: demo test proof lint typecheck clean

demo: $(VENV)/.model
	$(BIN)/gen "Once upon a time, in a lighthouse by the sea," --seed 7 -n 160 --stats

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

proof: $(VENV)/.test
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal -rP
	EXAMPLES=1000 $(BIN)/python -m pytest -n auto tests/samplers -k "llama_cpp or brute_force or leaves_rows or reset"

lint: $(VENV)/.test typecheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The rooms lie at the top level, but import each other as logitsmith.*: links show mypy that shape.
typecheck: $(VENV)/.test
	@mkdir -p $(VENV)/typecheck/logitsmith
	@for room in $(ROOMS); do ln -sfn "$(CURDIR)/$$room" $(VENV)/typecheck/logitsmith/$$room; done
	$(BIN)/mypy tools/install.py
	bin="$$(cd $(BIN) && pwd)" && cd $(VENV)/typecheck \
	  && "$$bin/mypy" --config-file "$(CURDIR)/pyproject.toml" -p logitsmith

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "logitsmith needs Python 3.10 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.model: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV); the first time compiles llama.cpp, about three minutes."
	$(BIN)/python tools/install.py model
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV); the first time compiles llama.cpp, about three minutes."
	$(BIN)/python tools/install.py model,test
	@touch $@ $(VENV)/.model

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
