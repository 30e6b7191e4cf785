# make quickstart   install, train with SLCA on real verl, evaluate, show the result (CPU, no network but pip)
# make test         install what the tests need, run them all
PYTHON ?= $(shell command -v python3.11 || command -v python3.12)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip

.PHONY: quickstart test lint install install-dev clean

quickstart: install
	$(BIN)/slca quickstart $(ARGS)

test: install-dev lint
	$(BIN)/python -m pytest $(ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(VENV)/.installed-cpu

install-dev: $(VENV)/.installed-dev

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: set PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed-cpu: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing pinned packages into $(VENV) ..."
	$(PIP) install --quiet --disable-pip-version-check -c constraints.txt -e ".[cpu]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-cpu
	$(PIP) install --quiet --disable-pip-version-check -c constraints.txt -e ".[cpu,dev]"
	touch $@

clean:
	rm -rf $(VENV) outputs .pytest_cache .mypy_cache .ruff_cache
