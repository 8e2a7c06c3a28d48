# Needs Python 3.11+, make and a C++ compiler; everything else is installed into .venv. `make help` lists the targets.

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
MODEL ?= smollm2-135m
HOST ?= 127.0.0.1
PORT ?= 8080
BASE ?=
BAR ?=
JOBS ?= 2
ARGS ?=

# MLX publishes wheels for Linux and for Apple silicon; an Intel Mac does without it and what needs it.
ifeq ($(shell uname -sm),Darwin x86_64)
EXTRAS ?= engine,torch,dev
else
EXTRAS ?= engine,torch,mlx,oracles,dev
endif

VENV := .venv
BIN := $(VENV)/bin
CREATED := $(VENV)/.created
INSTALLED := $(VENV)/.installed
say = @printf '\n\033[1m==> %s\033[0m\n' $(1)

# What the environment was made from. Another interpreter, place or set of extras makes it again.
RECIPE := $(PYTHON) $(CURDIR) $(EXTRAS) $(CONSTRAINTS)
ifneq ($(shell cat $(CREATED) 2>/dev/null),$(RECIPE))
.PHONY: $(CREATED)
endif

.DEFAULT_GOAL := help
.PHONY: help setup checkpoint test verify families serve bench asv golden lint clean

help: ## list what make can do here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1mmake %-10s\033[0m %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: checkpoint ## make .venv, install everything, fetch the checkpoint (done by the others too)

test: setup ## pass the tests (ARGS="-k sampling", JOBS=2 at once)
	$(call say,"Running the tests")
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

verify: setup ## run every gate on a real checkpoint; table here, page in reports/out/index.html
	$(call say,"Running the gates")
	$(BIN)/paritygate verify --report reports/out $(if $(BAR),--bar $(BAR)) $(ARGS)

families: setup ## run the gates of every family's tiny checkpoint (MLX and torch, about two minutes)
	$(call say,"Running the gates of the families")
	$(BIN)/paritygate verify --only members --report reports/out/families $(ARGS)

serve: setup ## serve a model over HTTP (MODEL=..., HOST=..., PORT=...)
	$(BIN)/tokenline serve -m $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

bench: setup ## compare the speed of this checkout with a base commit (BASE=REV)
	$(BIN)/paritygate bench ab $(if $(BASE),--base $(BASE)) $(ARGS)

asv: setup ## time HEAD and one earlier commit (BASE=REV), publish the site in .asv/html
	$(BIN)/python suites/bench/asv_run.py $(if $(BASE),--base $(BASE)) $(ARGS)

golden: setup ## say which goldens are accepted, pending, orphaned or never replayed
	$(BIN)/paritygate golden status $(ARGS)

lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --ignore-missing-imports engine harness

clean: ## remove reports and caches from this checkout (keeps .venv and the checkpoint)
	rm -rf reports/out .asv .pytest_cache .hypothesis .ruff_cache .mypy_cache .benchmarks build dist
	find engine harness suites -name __pycache__ -type d -prune -exec rm -rf {} +

checkpoint: $(INSTALLED)
	$(call say,"Checkpoint $(MODEL)")
	$(BIN)/tokenline models pull $(MODEL)

# --clear: what an interrupted run left behind is not built upon. Each stamp is written last, when all before it worked.
$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.11 or newer: install one, or say which with make PYTHON=..." >&2; exit 1; }
	$(call say,"Making $(VENV) with $(PYTHON)")
	@rm -f $(INSTALLED)
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "$(PYTHON) -m venv failed: install its venv module (Debian and Ubuntu: python3-venv)" >&2; exit 1; }
	@echo "$(RECIPE)" > $@

$(INSTALLED): $(CREATED) pyproject.toml $(CONSTRAINTS)
	$(call say,"Installing .[$(EXTRAS)] under $(CONSTRAINTS): about 1 GB the first time")
	$(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) -e ".[$(EXTRAS)]"
	@touch $@
