# Every target makes the virtual environment first when it is missing or older than pyproject.toml or constraints.txt.
#
#   PYTHON=python3.11   the interpreter that the environment is made with
#   PIP_FLAGS="..."     more arguments for pip. On Linux, PyPI's torch comes with CUDA (several GB); the CPU wheel:
#                       make verify PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   CONSTRAINTS=FILE    other pins than constraints.txt, such as those for another Python
#   PYTEST_FLAGS="..."  more arguments for pytest, such as --profile ci

PYTHON       ?= python3
PIP_FLAGS    ?=
CONSTRAINTS  ?= constraints.txt
PYTEST_FLAGS ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help verify test lint clean

help:
	@echo "make verify   run the packed model on real text and print one verdict a property (harness run --profile quick)"
	@echo "make test     run every suite (pytest suites/ -n auto)"
	@echo "make lint     style, format, import contracts, types"
	@echo "make clean    remove caches and what runs left behind; $(VENV) stays"

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 13) or sys.exit( \
		"got Python %d.%d; expected 3.11 or 3.12; choose one with PYTHON=python3.11" % v)'
	@echo "Installing into $(VENV); this happens once and takes a few minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c $(CONSTRAINTS) -e ".[test,dev]"
	@touch $@

verify: $(STAMP)
	@$(BIN)/harness run --profile quick

test: $(STAMP)
	@$(BIN)/pytest suites/ -n auto --dist worksteal $(PYTEST_FLAGS)

lint: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy

clean:
	@rm -rf __pycache__ build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find reports -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	@find v4model harness suites -name __pycache__ -prune -exec rm -rf {} +
