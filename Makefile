# Every target makes the virtual environment first when it is missing or older than pyproject.toml or constraints.txt.
#
#   PYTHON=python3.11   the interpreter that the environment is made with
#   PIP_FLAGS="..."     more arguments for pip. On Linux, PyPI's torch comes with CUDA (several GB); the CPU wheel:
#                       make verify PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   CONSTRAINTS=FILE    other pins than constraints.txt, such as those for another Python
#   PYTEST_FLAGS="..."  more arguments for pytest, such as --profile ci
#   DIFF_FLAGS="..."    more arguments for harness diff-baseline, such as --output html:reports/diff.html
#   REASON="..."        why make baseline may change what main gives

PYTHON       ?= python3
PIP_FLAGS    ?=
CONSTRAINTS  ?= constraints.txt
PYTEST_FLAGS ?=
DIFF_FLAGS   ?=
REASON       ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
RESULTS := reports/results.jsonl

.PHONY: help verify browser test diff baseline lint clean

help:
	@echo "make verify   run the packed model on real text and print one verdict a property (harness run --profile quick)"
	@echo "make test     run every suite (pytest suites/ -n auto)"
	@echo "make browser  install Chromium where apt-get can; without one, the tests of pages are skipped"
	@echo "make diff     compare what make test left with baselines/ (harness diff-baseline)"
	@echo "make baseline REASON='...'  make it what later runs are compared with (harness record-baseline)"
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

browser:
	@test -n "$$(which chromium chromium-browser google-chrome)" \
		|| { apt-get update -qq && apt-get install -qq --no-install-recommends chromium; } >/dev/null

test: $(STAMP)
	@rm -f $(RESULTS)
	@$(BIN)/pytest suites/ -n auto --dist worksteal --results $(RESULTS) $(PYTEST_FLAGS)

diff: $(STAMP)
	@$(BIN)/harness diff-baseline $(RESULTS) --fail-on removed $(DIFF_FLAGS)

baseline: $(STAMP)
	@$(BIN)/harness record-baseline $(RESULTS) --reason "$(REASON)"

lint: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy

clean:
	@rm -rf __pycache__ build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find reports -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	@find v4model harness suites -name __pycache__ -prune -exec rm -rf {} +
