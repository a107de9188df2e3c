# What rules take, as functions of the study: kept apart so that the other files hold rules only.
#
# Requires: common.smk.
# Gives:    HELDOUT, VALIDATION, STEPS, GGUF_TYPE, and the functions below.

from scripts.study.jobs import evaluate_running, evaluate_settings, train_running, train_settings

HELDOUT = STUDY.suites_of("heldout")
VALIDATION = STUDY.suites_of("validation")
STEPS = [f"step-{step}" for step in STUDY.training.checkpoints]
GGUF_TYPE = STUDY.gguf.outtype.upper()


def refresh_environments():
    """Bring the environments that are there up to date with their locks; no work where they are."""
    stages = ["workflow", POLICY_ENV, "harbor", "agents", "gguf"]
    there = [stage for stage in stages if Path(f".envs/{stage}.json").is_file()]
    if there:
        shell("$HARNESS_CARDS_PYTHON -m scripts.build_environment {there}")


def measured_adapter(wildcards):
    """Folder of the measured adapter, and for `selected` the record of which one it is; none for the base."""
    if wildcards.policy == "base":
        return []
    record = [f"{OUT}/select/{wildcards.harness}.json"] if wildcards.policy == "selected" else []
    return [f"{OUT}/adapters/{wildcards.harness}/{wildcards.policy}", *record]


def heldout_policy(wildcards):
    """Arguments that name the measured policy."""
    if wildcards.policy == "base":
        return ["--policy", "base"]
    named = ["--policy", f"{wildcards.policy}={OUT}/adapters/{wildcards.harness}/{wildcards.policy}"]
    selection = ["--selection", f"{OUT}/select/{wildcards.harness}.json"]
    return named + (selection if wildcards.policy == "selected" else [])


def deciding_attempts(wildcards):
    """The files of attempts that a checkpoint is selected by; none where the last one is taken."""
    suites = {"validation": VALIDATION, "heldout": HELDOUT, "final": []}[STUDY.selection.on]
    return expand(f"{OUT}/eval/{wildcards.harness}/{{step}}/{{suite}}.jsonl", step=STEPS, suite=suites)


def candidates(wildcards):
    """Attempts of all checkpoints on the suite, if that is where one was picked; else none."""
    if STUDY.selection.on != "heldout":
        return []
    return [
        f"{OUT}/eval/{wildcards.harness}/step-{step}/{wildcards.suite}.jsonl" for step in STUDY.training.checkpoints
    ]


def gguf_files(wildcards):
    """GGUF files and their fidelity, where the study makes them."""
    if not STUDY.gguf.enabled:
        return []
    base = [] if STUDY.card.gguf_base_repo else [f"{OUT}/gguf/base-{GGUF_TYPE}.gguf"]
    folder = f"{OUT}/gguf/{wildcards.harness}"
    return [*base, f"{folder}/adapter-{GGUF_TYPE}.gguf", f"{folder}/fidelity.json"]
