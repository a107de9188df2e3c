"""The published cards as data (``config/reported.yaml``): figures as printed, and what else the cards state."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from scripts.study.config import (
    HUB_ID,
    NAME,
    Comparison,
    ConfigError,
    Count,
    Fraction,
    PositiveFloat,
    PositiveInt,
    Section,
    explain,
)

HubId = Annotated[str, Field(pattern=HUB_ID)]
Rate = Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]%$")]


class ReportedBase(Section):
    """The base model."""

    hub_id: HubId
    title: str
    license: str
    license_name: str | None
    license_link: str | None
    non_commercial: bool


class ReportedSuite(Section):
    """A suite that was evaluated."""

    title: str
    hub_id: HubId
    kind: str = Field(description="What its tasks are.")
    tasks: PositiveInt = Field(description="Tasks that were held out; a row's n is how many were graded on both sides.")
    min_index: Count | None
    difficulties: list[str]
    reached_in_training: bool = Field(description="Whether training got to any of this source's tasks.")


class ReportedEvaluation(Section):
    """How both sides were measured."""

    attempts: PositiveInt
    temperature: PositiveFloat


class ReportedServing(Section):
    """The vLLM command."""

    arguments: list[list[str]] = Field(
        description="After `vllm serve <base>`, one line each; `--lora-modules` is added."
    )
    max_model_len: PositiveInt
    base_url: str
    example: str = Field(description="Question in the agent's example command.")


class ReportedGguf(Section):
    """The llama.cpp command."""

    base_repository: HubId
    base_file: str
    server: str
    context: PositiveInt
    port: PositiveInt
    reevaluated: bool


class ReportedTraining(Section):
    """The training table."""

    method: str
    method_link: str
    steps: PositiveInt
    learning_rate: PositiveFloat
    rank: PositiveInt
    alpha: PositiveInt
    target_modules: str
    rollouts_per_task: PositiveInt
    temperature: PositiveFloat
    call_budget: PositiveInt
    agent_timeout_s: PositiveFloat
    microbatches: PositiveInt
    token_budget: PositiveInt
    max_staleness: Count
    bonus_weight: Fraction
    reward_keys: list[str] = Field(description="The verifier's key that is the reward, and what it falls back to.")
    tasks: str
    server: str
    sandbox: str
    screening: str
    hardware: str
    hardware_service: str
    hardware_use: str
    script: str


class ReportedHarness(Section):
    """The coding agent."""

    title: str
    version: str | None = Field(description="As the card states it; null where it does not.")
    needs: str | None


class ReportedRow(Section):
    """A row of a published results table, as printed."""

    suite: str
    n: PositiveInt
    base: Rate
    adapter: Rate
    difference: Annotated[str, Field(pattern=r"^[+-][0-9]+\.[0-9] ± [0-9]+\.[0-9]$")]
    calls: Annotated[str, Field(pattern=r"^[+-][0-9]+%$")]
    both_solved: Count

    @property
    def calls_percent(self) -> float:
        """The printed change of the tool calls, as a number."""
        return float(self.calls.removesuffix("%"))


class ReportedCard(Section):
    """What one card has of its own."""

    source: str
    harness: ReportedHarness
    repository: HubId
    gguf_repository: HubId
    gguf_file: str
    alias: str = Field(pattern=NAME)
    install: str
    config_path: str
    config: dict[str, Any]
    run: str = Field(description="Command before the question.")
    llama_commands: list[str] = Field(description="The agent's own llama.cpp plugin, if it has one.")
    step: PositiveInt
    tasks_trained: PositiveInt = Field(description="Tasks trained on, up to this checkpoint.")
    picked_on: Literal["validation", "heldout", "final"]
    candidates: PositiveInt = Field(description="Checkpoints that were looked at.")
    rows: list[ReportedRow] = Field(min_length=1)


class Reported(Section):
    """The whole of ``config/reported.yaml``."""

    kind: Literal["reported"]
    name: str = Field("reported", pattern=NAME)
    outdir: str = "results/reported"
    base: ReportedBase
    library_name: str
    datasets: list[HubId]
    tags: list[str] = Field(description="Tags of every card; the harness's name is one more.")
    task_family: str
    suites: dict[str, ReportedSuite]
    evaluation: ReportedEvaluation
    serving: ReportedServing
    gguf: ReportedGguf
    training: ReportedTraining
    links: dict[str, str]
    comparison: Comparison = Comparison()
    cards: dict[Annotated[str, Field(pattern=r"^[a-z0-9]+$")], ReportedCard] = Field(min_length=1)

    @model_validator(mode="after")
    def _rows_name_known_suites(self) -> Reported:
        for harness, card in self.cards.items():
            for number, row in enumerate(card.rows):
                suite = self.suites.get(row.suite)
                if suite is None:
                    raise ValueError(f"cards.{harness}.rows.{number}.suite: {row.suite!r} is not among `suites`")
                if row.suite in [other.suite for other in card.rows[:number]]:
                    raise ValueError(f"cards.{harness}.rows.{number}.suite: {row.suite!r} has a row already")
                if row.n > suite.tasks:
                    raise ValueError(
                        f"cards.{harness}.rows.{number}.n: {row.n} of the {suite.tasks} tasks of {row.suite}"
                    )
        return self

    @property
    def harnesses(self) -> list[str]:
        """Harnesses that have a card, in the order of the file."""
        return list(self.cards)


def parse_reported(data: dict[str, Any], source: str = "config") -> Reported:
    """Validate the published facts.

    :param data: the parsed YAML.
    :param source: name of the file for messages.
    :raises ConfigError: one line per fault, each with file and key.
    """
    try:
        return Reported.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, source)) from None
