# The two commands of the README, and the checks. Needs: make, Python 3.11 and 3.12, a C++ compiler, PyPI and npm.
PYTHON := $(firstword $(shell command -v python3.11 python3.12 python3))
BIN := .envs/workflow/bin
BUILD = $(BIN)/python -m scripts.build_environment

# Tests that import a stage's packages run with that stage's Python; the others with the workflow's.
NEEDS = $(shell grep -lE 'importorskip."($(1))' tests/test_*.py)

ENGINE = $(shell grep -lE 'pytest.mark.engine' tests/test_*.py)

.PHONY: setup card test test-fast test-stages test-study test-engine lint locks clean

setup: .envs/workflow.json ## Snakemake, linters and pytest, in .envs/workflow

card: .envs/workflow.json ## train, measure and render the demo's model card
	$(BIN)/snakemake --cores all results/card_pi.md

test: test-fast test-stages test-study test-engine ## every test, the small end-to-end study included

test-fast: .envs/workflow.json ## what needs no environment but the workflow's
	$(BIN)/python -m pytest -q tests

test-stages: .envs/workflow.json ## what needs the packages of a stage, without the engine
	$(BUILD) policy-cpu harbor agents
	.envs/harbor/bin/python -m pytest -q $(call NEEDS,harbor)
	.envs/policy-cpu/bin/python -m pytest -q $(call NEEDS,torch|transformers|peft|trl|vllm|openenv)

test-study: .envs/workflow.json ## the small study, killed three times on its way, and its card used as a reader would
	$(BIN)/python -m pytest -v tests/test_study.py --study
	STUDY_RESULTS=results/smoke $(BIN)/python -m pytest -v tests/test_card_commands.py tests/test_report_page.py --study

test-engine: .envs/workflow.json ## what needs the real engine; after the study, whose policy and environments it uses
	$(BUILD) policy-cpu harbor agents gguf
	STUDY_RESULTS=results/smoke .envs/policy-cpu/bin/python -m pytest -v --engine -m engine $(ENGINE)

lint: .envs/workflow.json
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy
	$(BIN)/snakemake --lint
	$(BIN)/snakemake --lint --configfile config/reported.yaml

locks: .envs/workflow.json ## resolve envs/*.in anew; versions stay where they fit
	$(BIN)/python -m scripts.lock_environments

clean: ## remove results; environments stay (remove .envs for those)
	rm -rf results .snakemake .pytest_cache .ruff_cache .mypy_cache

.envs/workflow.json: envs/workflow.lock envs/bootstrap.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 not found: install it so that python3.11 is on the PATH" >&2; exit 1; }
	$(PYTHON) -m scripts.build_environment workflow
