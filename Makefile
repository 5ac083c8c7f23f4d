# A fresh machine needs Python 3.11 or newer and make; everything else goes into .venv.
#
# torch comes from constraints.txt, in the default build of the platform. Without a GPU on Linux, take the smaller one:
#     PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
FETCH  := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# uv installs in a fraction of pip's time. Where it cannot (an index that only pip knows), pip does
UV     := env UV_INDEX_STRATEGY=unsafe-best-match UV_FIND_LINKS="$$PIP_FIND_LINKS" UV_INDEX="$$PIP_EXTRA_INDEX_URL" \
	$${PIP_INDEX_URL:+UV_DEFAULT_INDEX="$$PIP_INDEX_URL"} $(BIN)/uv pip install --quiet --python $(BIN)/python
install = { $(UV) $(1) || $(FETCH) --no-compile $(1); }
BESIDE := --upgrade --no-deps --target
OUT    ?= runs/demo
BEGUN  := $(shell date +%s)
RECORD ?= records/$(shell date +%F)-reliability
BASE   ?= HEAD
export OMP_WAIT_POLICY ?= passive
export GOMP_SPINCOUNT ?= 10000
# Older transformers that exported folders must load in, beside the environment: tests put them on their path. The oldest brings
# only what it cannot share with the other
OLD          := $(VENV)/transformers-4
OLD_PACKAGES := transformers==4.57.6 huggingface_hub==0.36.0 tokenizers==0.22.1 \
	requests==2.34.2 urllib3==2.8.0 charset-normalizer==3.5.2 idna==3.20 certifi==2026.10.18
OLDEST          := $(VENV)/transformers-4.49
OLDEST_PACKAGES := transformers==4.49.0 tokenizers==0.21.4

# PyTorch's build for GPUs with its headers, several gigabytes, for a pretended card (tests/gpu/card.cpp). CARD: where
CARD          ?= $(VENV)/card
CARD_PACKAGES := torch===2.13.0 numpy tokenizers safetensors rich matplotlib scikit-learn scipy threadpoolctl jinja2 tyro \
	'transformers>=4.57' 'pytest>=8.4' 'nvidia-cuda-cccl>=13,<13.1'

# pip compiles on one core; this takes all of them, and leaves out what nobody imports: packages' own tests, tools, and the models of
# transformers that are not ELECTRA or BERT. Not every file of a package is Python that compiles: pip leaves those out, too
UNUSED  := /(tests|pip|mypyc?|setuptools|pygments|torch(gen|/testing|/onnx)|transformers/models/(?!auto/|bert/|electra/)[^/]+)/
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '$(UNUSED)' $(VENV)/lib >/dev/null 2>&1 || true

.DEFAULT_GOAL := help
.PHONY: help demo test test-together test-alone reliability reliability-together reliability-alone sabotage net gpu-rehearsal check check-native docs notebooks count map clean venv
.NOTPARALLEL:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The demo has what installing leaves of its five minutes. Bytecode is kept, since the demo's processes import the same packages
demo: $(VENV)/.base ## Pre-train a tiny ELECTRA on this machine in a few minutes and show what it learned
	left=$$(($(BEGUN) + 270 - $$(date +%s))) && \
	PYTHONDONTWRITEBYTECODE= $(BIN)/electra demo --out $(OUT) --budget $$((left > 265 ? 265 : left < 120 ? 120 : left))s

test: $(VENV)/.dev ## Run every test, the slow ones too, on all cores
	@$(MAKE) --no-print-directory --keep-going test-together test-alone

# A file stays with one process (its fixtures are made once); tests/conftest.py puts the slowest files first. One process more than
# cores, since some tests wait (for a frozen process to be noticed) more than they compute
test-together: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not alone' --dist loadfile --no-loadscope-reorder \
		--numprocesses $$($(BIN)/python -c 'import os; print(min((os.cpu_count() or 1) + 1, 16))')

# What measures time, or takes all cores itself
test-alone: $(VENV)/.dev
	$(BIN)/python -m pytest -m alone $$(grep -rl 'mark\.alone' tests --include='test_*.py')

reliability: $(VENV)/.dev ## The long forms of tests/reliability and tests/faults; their figures go to RECORD/figures.jsonl
	mkdir -p $(RECORD)
	rm -f $(RECORD)/figures.jsonl
	@$(MAKE) --no-print-directory --keep-going reliability-together reliability-alone

LONG := ELECTRA_RELIABILITY=long ELECTRA_RELIABILITY_OUT=$(abspath $(RECORD))/figures.jsonl $(BIN)/python -m pytest tests/reliability tests/faults --timeout 7200

reliability-together: $(VENV)/.dev
	$(LONG) -m 'not alone' --dist loadfile --no-loadscope-reorder --numprocesses logical

reliability-alone: $(VENV)/.dev
	$(LONG) -m alone

sabotage: $(VENV)/.dev ## Are the tests good for anything? Break each promise in a copy of the source and see them fail
	$(BIN)/python -m tests.reliability.sabotage

net: $(VENV)/.dev ## Does every command compute and say what it did at BASE? (RUNS: some only; ten minutes on one core)
	@folder=$$(mktemp -d) && trap 'git worktree remove --force '$$folder'/base; rm -rf '$$folder EXIT && \
	git worktree add --quiet --detach $$folder/base $(BASE) && \
	$(BIN)/python -m tests.net record --source $$folder/base/src --out $$folder/old.json $(if $(RUNS),--only $(RUNS)) && \
	$(BIN)/python -m tests.net record --source src --out $$folder/new.json $(if $(RUNS),--only $(RUNS)) && \
	$(BIN)/python -m tests.net compare $$folder/old.json $$folder/new.json

gpu-rehearsal: $(VENV)/.dev $(CARD)/.ready ## The training step on a pretended GPU: captures, launches, waits, ranks (installs several GB)
	ELECTRA_CARD=$(abspath $(CARD)) $(BIN)/python -m pytest tests/gpu

check: $(VENV)/.dev ## Lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The kernels in C++ under AddressSanitizer and UndefinedBehaviorSanitizer, with 4 numbers in a vector and as many as here, on tiles too
KERNELS  := src/electra_trainer/kernels/native
SANITIZE := $(or $(CXX),g++) -std=c++17 -O1 -g -Wall -Wextra -Werror -Wno-psabi -ffp-contract=fast -fno-sanitize-recover=all \
	-fsanitize=address,undefined -I $(KERNELS) -I tests/kernels/native tests/kernels/native/sanitized.cpp
check-native: ## Run the C++ kernels under sanitizers
	@folder=$$(mktemp -d) && trap 'rm -rf '$$folder EXIT && for flags in -DELECTRA_NUMBER=float '-DELECTRA_NUMBER=float -march=native' \
		'-DELECTRA_NUMBER=bf16 -march=native' '-DELECTRA_NUMBER=bf16 -DELECTRA_AMX -DELECTRA_EMULATED'; do \
		echo "$$flags" && $(SANITIZE) $$flags -o $$folder/sanitized && $$folder/sanitized || exit 1; done

docs: $(VENV)/.dev ## Build the site into build/site: a link that leads nowhere fails
	$(BIN)/python docs/build_site.py

notebooks: $(VENV)/.dev ## Run the notebooks, each in a folder of its own
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter-execute --timeout=600 notebooks/*.ipynb

count: $(VENV)/.dev ## Files, lines of code and imports, room by room
	$(BIN)/python -m tests.house count

map: $(VENV)/.dev ## Print one sentence a file, from the docstrings
	$(BIN)/python -m tests.house map

clean: ## Remove .venv, caches and builds; runs/ and data/ stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: each is made again when the dependencies change. `.dev` does not wait for `.base`: pip settles everything once.
$(VENV)/.base: pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory venv
	$(call install,-c constraints.txt -e .)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory venv
	$(call install,-c constraints.txt -e '.[dev]')
	$(call install,$(BESIDE) $(OLD) $(OLD_PACKAGES))
	$(call install,$(BESIDE) $(OLDEST) $(OLDEST_PACKAGES))
	$(COMPILE)
	@touch $(VENV)/.base $@

$(CARD)/.ready:
	$(PYTHON) -m venv $(CARD)
	PIP_EXTRA_INDEX_URL= $(CARD)/bin/python -m pip --disable-pip-version-check install --quiet $(CARD_PACKAGES)
	@touch $@

venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	@echo "Installing into $(VENV); torch is large, the first time takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(FETCH) -c constraints.txt --no-compile uv || true
