# The workflow's preamble: the validated study, and the few names that every rule file uses.
#
# Requires: the config.
# Gives:    OUT, REPORTED, and for a study STUDY, POLICY_ENV, TARGETS, policy_job(), python(), environment().

import os
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT))
# The Python that runs Snakemake builds the environments; in the environment, since in a rule it would count as a change.
os.environ["HARNESS_CARDS_PYTHON"] = sys.executable


envvars:
    "HARNESS_CARDS_PYTHON",


from scripts.study.config import ConfigError, parse_study
from scripts.study.jobs import policy_job
from scripts.study.overrides import with_numbers

CONFIG_FILES = ", ".join(str(path) for path in workflow.config_settings.configfiles) or "config/config.yaml"
REPORTED = config.get("kind") == "reported"


def validated(parse):
    """The parsed config; a fault ends the run with the lines that name its keys, before anything is planned."""
    try:
        return parse(with_numbers(config, workflow.config_settings.config), CONFIG_FILES)
    except ConfigError as error:
        raise WorkflowError(str(error)) from None


if REPORTED:
    from scripts.study.reported import parse_reported

    STUDY = validated(parse_reported)
    TARGETS = [f"{STUDY.outdir}/tables.md", *(f"{STUDY.outdir}/card_{harness}.md" for harness in STUDY.harnesses)]
else:
    STUDY = validated(parse_study)
    POLICY_ENV = "policy-cpu" if STUDY.hardware == "cpu" else "policy-cuda"
    TARGETS = [f"{STUDY.outdir}/card_{harness}.md" for harness in STUDY.harnesses]

OUT = STUDY.outdir


def python(stage):
    """The interpreter of a stage's environment."""
    return f".envs/{stage}/bin/python"


def missing(stage):
    """Whether a stage's environment has yet to be built."""
    return not Path(f".envs/{stage}.json").is_file()


def environment(stage):
    """Marker of a built environment. A rebuilt environment alone reruns nothing: results record their versions."""
    return ancient(f".envs/{stage}.json")


wildcard_constraints:
    harness="[a-z0-9]+",
    suite="[a-z0-9-]+",
    policy=r"base|selected|step-\d+",
    step=r"\d+",


def shown_config():
    """The config file as the card names it: relative to the repository, or its bare name."""
    files = [Path(path).resolve() for path in workflow.config_settings.configfiles] or [ROOT / "config/config.yaml"]
    last = files[-1]
    return last.relative_to(ROOT).as_posix() if last.is_relative_to(ROOT) else last.name


def unpinned():
    """Config keys whose commit is still the placeholder of all zeros."""
    if REPORTED:
        return []
    pins = {"policy.revision": STUDY.policy.revision}
    pins |= {f"suites.{name}.revision": suite.revision for name, suite in STUDY.suites.items()}
    return [key for key, revision in pins.items() if revision and set(revision) == {"0"}]


def refuse_placeholders():
    """End the run before it starts if a commit is not set yet."""
    if unpinned():
        raise WorkflowError(f"{CONFIG_FILES}: {', '.join(unpinned())}: set the 40-digit commit that the study is about")
