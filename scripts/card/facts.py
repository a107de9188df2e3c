"""The facts of a model card: what ``card_<harness>/card.json`` holds.

A card is rendered from this and nothing else. Every value has a source: ``sources`` maps a dotted path
(``training.learning_rate``, ``comparisons.0``) to where the value came from, and covers everything below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from scripts.stats.records import Comparison
from scripts.study.config import HUB_ID, explain


class CardError(ValueError):
    """A card cannot be made; the message names the file or fact and what to do."""


class Facts(BaseModel):
    """Base of every part: unknown keys and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(Facts):
    """Where a fact came from; at least one of ``file`` and ``config``."""

    file: str | None = Field(None, description="Path relative to the study's outdir, or the config file's name.")
    rows: int | None = Field(None, description="Rows that were read of it.")
    config: str | None = Field(None, description="Dotted key of the study's config.")

    @model_validator(mode="after")
    def _names_something(self) -> Source:
        if self.file is None and self.config is None:
            raise ValueError("a source needs `file` or `config`")
        return self


class Harness(Facts):
    """The coding agent; what else there is to know of it stands in :mod:`scripts.card.harness_use`."""

    name: str
    version: str | None = Field(description="Version in training and evaluation; null where it was not recorded.")


class Base(Facts):
    """The base model."""

    hub_id: str = Field(pattern=HUB_ID)
    title: str
    on_hub: bool = Field(description="False where the pipeline builds it or takes it from a folder.")
    built_here: bool = Field(description="True for the demo policy, which knows its closed world only.")
    revision: str | None
    parameters: int | None
    sha256: str | None = Field(description="Digest over the model's files.")
    license: str
    license_name: str | None
    license_link: str | None


class Repositories(Facts):
    """Published names."""

    adapter: str = Field(pattern=HUB_ID)
    gguf: str | None = Field(pattern=HUB_ID)
    served_name: str = Field(description="Model name under which users serve the adapter.")


class Suite(Facts):
    """One suite of tasks."""

    name: str
    role: Literal["train", "validation", "heldout"]
    title: str | None = Field(description="How the card calls it; its number of tasks, role and name where null.")
    hub_id: str | None
    revision: str | None
    seed: int | None
    tasks: int | None = Field(description="Tasks in it; null where it was not published.")
    difficulties: list[str]
    min_index: int
    what: str | None = Field(None, description="What its tasks are, where that is not the card's task family.")
    trained_tasks: int | None = Field(description="Tasks of it that were trained on, up to this checkpoint.")


class Measured(Facts):
    """A comparison on one held-out suite, without its rows."""

    suite: str
    comparison: Comparison = Field(description="As compared, with `tasks` left out.")
    calls_base: dict[str, int] = Field(description="Tasks of the pairs by tool calls, base.")
    calls_adapter: dict[str, int] = Field(description="The same for the adapter.")


class Candidate(Facts):
    """A checkpoint that was looked at when one was picked."""

    step: int
    n: int
    solved: float
    rate_percent: float
    tool_calls: float | None


class Checkpoint(Facts):
    """Which checkpoint this is and how it was picked."""

    step: int
    of_steps: int
    picked_on: Literal["validation", "heldout", "final"]
    suites: list[str] = Field(description="Suites that it was picked on.")
    rule: str | None = Field(description="The rule in words.")
    candidates: list[Candidate]
    candidate_count: int | None = Field(description="Checkpoints that were looked at, where not all are listed.")


class Training(Facts):
    """How the adapter was trained."""

    learning_rate: float
    rank: int
    alpha: int
    target_modules: str
    rollouts_per_task: int
    microbatches: int
    token_budget: int
    max_staleness: int
    bonus_weight: float
    bonus_calls: int | None = Field(description="Tool calls at which the bonus is zero.")
    temperature: float
    call_budget: int
    agent_timeout_s: float
    environment: str
    hardware: str
    tasks_trained: int = Field(description="Tasks with a rollout in a step up to this checkpoint.")
    wall_s: float | None
    resumed: int | None = Field(description="Times that the run was continued after it had been killed.")
    rollouts: int | None
    unscored: dict[str, int] = Field(description="Rollouts without a grade, by cause.")
    sync: str | None = Field(description="How weights reached the engine.")


class Curve(Facts):
    """One optimizer step, for the picture of the training."""

    step: int
    reward: float | None
    correctness: float | None
    tool_calls: float | None
    staleness_mean: float | None
    staleness_max: float | None


class Serving(Facts):
    """How vLLM serves it, the same as in training and evaluation."""

    environment: dict[str, str] = Field(description="Environment variables of the command.")
    arguments: list[list[str]] = Field(description="Arguments of `vllm serve`, one line of the command each.")
    max_lora_rank: int
    max_model_len: int
    max_output_tokens: int | None
    example: str = Field(description="A question for the agent.")
    example_is_task: bool = Field(description="True where the example is a held-out task's instruction.")


class Fidelity(Facts):
    """Agreement of the GGUF files with the evaluated adapter, teacher-forced."""

    turns: int
    tokens: int
    same_texts: int | None = Field(description="Turns whose text both tokenizers cut alike.")
    top1_percent: float
    kl_mean: float
    kl_max: float
    control_top1_percent: float = Field(description="The same with the adapter scaled by 0.")
    control_kl_mean: float
    control_kl_max: float


class Gguf(Facts):
    """The files for llama.cpp."""

    adapter_file: str
    base_repository: str
    base_file: str
    server: str = Field(description="Command that starts the server.")
    arguments: list[list[str]] = Field(description="Further arguments, one line each.")
    context: int
    plugin: bool = Field(description="Mention the harness's own llama.cpp plugin.")
    fidelity: Fidelity | None
    reevaluated: bool


class File(Facts):
    """A published file."""

    repository: Literal["adapter", "gguf"]
    name: str
    bytes: int
    sha256: str
    source: str = Field(description="Path relative to the study's outdir.")


class Card(Facts):
    """All facts of one card."""

    schema_version: Literal[1] = 1
    kind: Literal["measured", "reported"]
    study: str
    config: str = Field(description="Config file of the study, as it is given to Snakemake.")
    target: str = Field(description="Target that makes the card again.")
    seed: int | None
    harness: Harness
    base: Base
    repositories: Repositories
    task_family: str
    datasets: list[str] = Field(description="Hub ids of the data sets that it was trained on.")
    suites: list[Suite]
    comparisons: list[Measured] = Field(min_length=1, description="The first is the main evaluation.")
    checkpoint: Checkpoint
    training: Training
    curve: list[Curve]
    serving: Serving
    gguf: Gguf | None
    files: list[File]
    versions: dict[str, str]
    notes: list[str] = Field(description="Further limitations, one sentence each.")
    script: str | None = Field(None, description="Address of the training script, where it is not this pipeline.")
    published: str | None = Field(None, description="Address of the published card that the facts were taken from.")
    sources: dict[str, Source]

    @model_validator(mode="after")
    def _every_fact_has_a_source(self) -> Card:
        orphans = [path for path, _ in leaves(self.model_dump(exclude={"sources"})) if not self.source_of(path)]
        if orphans:
            raise ValueError(f"no source for {', '.join(orphans[:5])}; add it to `sources`")
        suites = {suite.name for suite in self.suites}
        for measured in self.comparisons:
            if measured.suite not in suites:
                raise ValueError(f"comparisons: suite {measured.suite} is not among `suites`")
        return self

    def source_of(self, path: str) -> Source | None:
        """Source of the fact at a dotted path: that of its longest prefix."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            found = self.sources.get(".".join(parts[:length]))
            if found:
                return found
        return None

    def suite(self, name: str) -> Suite:
        """The suite of that name."""
        return next(suite for suite in self.suites if suite.name == name)


def possible_pictures(card: Card) -> list[str]:
    """Names of the pictures that a card's facts allow, in the order of the card."""
    main = card.comparisons[0]
    allowed = ["hero", "forest"]
    allowed += ["calls"] if main.calls_base and main.calls_adapter else []
    allowed += ["outcomes"] if main.comparison.table or main.comparison.by_difficulty else []
    return allowed + (["training"] if card.curve else [])


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All (dotted path, value) pairs below a value; empty lists and dictionaries have none."""
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        if path != "schema_version":
            yield path, value
        return
    for key, part in items:
        yield from leaves(part, f"{path}.{key}" if path else str(key))


def read_card(path: str | Path) -> Card:
    """Read ``card.json``.

    :raises CardError: the file is missing or is not a card's facts.
    """
    try:
        return Card.model_validate_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CardError(f"{path}: {error.strerror}; run scripts.collect_card first") from None
    except ValidationError as error:
        raise CardError(explain(error, str(path))) from None


def write_card(card: Card, path: str | Path) -> None:
    """Write ``card.json``, one fact a line."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
