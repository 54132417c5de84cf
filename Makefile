# Everything runs in .venv. The first run compiles llama.cpp, which takes a few minutes; later runs find the wheel.
# make VENV=path uses an environment of yours and the llama-cpp-python in it; make clean leaves it alone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test proof pythons dependencies faults fuzz lint typecheck docs docs-serve browser ray clients schema-suite transformers gpu clean

demo: $(VENV)/.model
	$(BIN)/gen "Once upon a time, in a lighthouse by the sea," --seed 7 -n 160 --stats

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

proof: $(VENV)/.test
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal -rP -o faulthandler_timeout=3600
	EXAMPLES=1000 $(BIN)/python -m pytest -n auto tests/samplers -k "llama_cpp or brute_force or leaves_rows or reset or saved_state or sorted"

# The fast tests with other versions. pythons: the tests of five packages with every supported Python that is installed.
# dependencies: all tests with the lowest and with the newest versions that pyproject.toml allows.
pythons dependencies:
	$(PYTHON) tools/try_environments.py $@ $(VENV)/environments

# Part of the proof: every command that writes files, under signals, with full disks and closed streams.
faults: $(VENV)/.test
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal -rP -o faulthandler_timeout=3600 tests/faults

# Odd inputs for SECONDS of processor time, for all targets or the named ones: make fuzz SECONDS=600 TARGETS="gbnf score-lines".
SECONDS ?= 60
fuzz: $(VENV)/.fuzz
	nice $(BIN)/python -m tests.fuzz $(SECONDS) $(TARGETS)

lint: $(VENV)/.test typecheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(VENV)/.test
	$(BIN)/mypy

# The manual, as a site in site/. Python is started with -m, so that the hook can import docs.tools.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: $(VENV)/.docs
	$(MKDOCS) build --strict --quiet

docs-serve: $(VENV)/.docs
	$(MKDOCS) serve

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "logitsmith needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.model: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV)."
	$(BIN)/python tools/install.py model,serve
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV)."
	$(BIN)/python tools/install.py model,test
	@touch $@ $(VENV)/.model

$(VENV)/.fuzz: $(VENV)/.test
	@$(BIN)/python tools/install.py model,test,fuzz \
	  || echo "atheris does not install here: inputs are made without looking at what code they reach" >&2
	@touch $@

# Playwright, which drives the browser in the tests of the report and of the server's page. The browser is the system's: apt-get install
# chromium. With npm also axe-core, which finds what people who see or move badly cannot use. No script of its package is run.
AXE := axe-core@4.11.0
browser: $(VENV)/.browser

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/python tools/install.py model,test,browser
	@if command -v npm > /dev/null; then npm install --prefix $(VENV)/browser --ignore-scripts --no-audit --no-fund --loglevel=error $(AXE); fi
	@touch $@

# Ray, for the tests of batches on a cluster. Without it they are skipped.
ray: $(VENV)/.ray

$(VENV)/.ray: $(VENV)/.test
	$(BIN)/python tools/install.py model,test,ray
	@touch $@

# lm-evaluation-harness, schemathesis and SillyTavern, for the tests of the server. Without them these tests are skipped. SillyTavern needs
# Node.js 20 and npm: apt-get install nodejs npm. No script of its packages is run.
SILLYTAVERN := sillytavern@1.19.0
clients: $(VENV)/.clients

$(VENV)/.clients: $(VENV)/.test
	$(BIN)/python tools/install.py model,test,clients
	npm install --prefix $(VENV)/clients --ignore-scripts --no-audit --no-fund --loglevel=error $(SILLYTAVERN)
	@touch $@

# The official JSON Schema Test Suite, for the proof of what schemas mean; the source distribution of jsonschema carries it. Without it this
# proof is skipped.
SCHEMA_SUITE := jsonschema==4.26.0
schema-suite: $(VENV)/.schema-suite

$(VENV)/.schema-suite: $(VENV)/.test
	$(BIN)/python -m pip download --quiet --no-deps --no-binary jsonschema --dest $(VENV)/schema-suite $(SCHEMA_SUITE)
	tar -xzf $(VENV)/schema-suite/$(subst ==,-,$(SCHEMA_SUITE)).tar.gz -C $(VENV)/schema-suite --strip-components=2 \
	  $(subst ==,-,$(SCHEMA_SUITE))/json/tests
	@touch $@

# A GPU in software, for the proofs of what is computed on a GPU: llama.cpp's Vulkan backend on Mesa's lavapipe. Without it these proofs are
# skipped. It needs apt-get install cmake g++ ninja-build glslc mesa-vulkan-drivers libvulkan-dev spirv-headers, and about 20 minutes.
gpu: $(VENV)/.gpu

$(VENV)/.gpu: $(VENV)/.test
	$(BIN)/python -m benchmarks.build_llama_cpp --software-gpu
	@touch $@

# transformers with torch, for the proofs that compare samplers, watermarks and beam searches with transformers. Without it these proofs are
# skipped. It has a virtual environment of its own, of 5.6 GB, because its versions of other packages are not ours to choose.
transformers: $(VENV)/.transformers

$(VENV)/.transformers: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/transformers
	$(VENV)/transformers/bin/python -m pip install --quiet $$($(BIN)/python tools/dependency_group.py transformers)
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV)."
	$(BIN)/python tools/install.py docs
	@touch $@

clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
