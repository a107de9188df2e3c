"""Shape of a comparison: what ``results/compare/<harness>/<suite>/selected.json`` holds.

Units are in the names: ``_percent`` for rates and relative changes (81.5 means 81.5 %), ``_points`` for differences
of rates. Numbers are kept at full precision; rounding is the card's. A quantity that is not defined is null, and the
``reason`` beside it says why: never NaN, never a width of zero that only means "no data".
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1


class Record(BaseModel):
    """Base of every part: unknown keys and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(Record):
    """Where the rows of one side came from."""

    path: str = Field(description="File or folder as it was given.")
    sha256: str | None = Field(None, description="Digest of the file; null for a folder or for printed figures.")
    kind: Literal["attempts", "harbor", "openenv", "printed"] = Field(description="Format that was read.")
    rows: int = Field(description="Rows read from it.")


class Side(Record):
    """One policy on the suite."""

    policy: str = Field(description="`base`, `step-18`, ... as the rows name it.")
    source: Source
    model: str | None = Field(None, description="Hub id of the base model.")
    harness_version: str | None = None
    solved: float | None = Field(description="Tasks solved among the n pairs; fractional with several attempts.")
    rate_percent: float | None
    rate_low_percent: float | None = Field(description="Wilson interval of this side alone.")
    rate_high_percent: float | None
    attempts: int = Field(description="Attempts on the suite's tasks, scored or not.")
    scored: int = Field(description="Attempts that the verifier graded.")
    dropped: dict[str, int] = Field(description="Tasks without a grade on this side, by reason.")
    stops: dict[str, int] = Field({}, description="Scored attempts by how they ended: finished, call_budget, ...")
    raw_tool_markup: int | None = Field(None, description="Attempts that carry the flag; null where unknown.")
    mean_tool_calls: float | None = Field(None, description="Mean over all scored attempts of the pairs.")


class Table(Record):
    """The 2×2 table of pairs."""

    both: int
    base_only: int
    adapter_only: int
    neither: int


class Outcomes(Table):
    """The 2×2 table of one difficulty; `unknown` where the index has none."""

    difficulty: str


class Interval(Record):
    """An interval of the difference adapter - base, in points."""

    name: str = Field(description="normal, student, tango, newcombe, agresti_min, cluster.")
    label: str = Field(description="The method in words.")
    low_points: float | None
    high_points: float | None
    half_width_points: float | None = Field(description="Half of the width; the ± of a symmetric interval.")
    reason: str | None = Field(None, description="Why it is not defined.")
    source: str = Field(description="Publication of the formula.")


class McNemar(Record):
    """P-values of McNemar's tests."""

    exact: float | None
    midp: float | None
    reason: str | None = None


class Calls(Record):
    """Tool calls on the tasks that both sides solved."""

    tasks: int | None = Field(description="Tasks that both solved.")
    base_total: float | None
    adapter_total: float | None
    change_percent: float | None = Field(description="100 × (adapter_total / base_total − 1).")
    low_percent: float | None = Field(description="Joint task bootstrap.")
    high_percent: float | None
    draws: int | None = None
    seed: int | None = None
    reason: str | None = Field(None, description="Why change or interval is not defined.")


class Power(Record):
    """What this number of tasks could have shown."""

    power: float = Field(description="Power that the effects below are for.")
    discordant_percent: float | None = Field(description="Observed share of pairs that differ.")
    detectable_points: float | None = Field(description="Minimum detectable effect at that power.")
    needed: dict[str, int | None] = Field(description="Tasks needed to detect this many points; null: impossible.")
    reason: str | None = None


class Bounds(Record):
    """The difference if every dropped pair had gone against, or for, the adapter."""

    dropped_pairs: int | None
    worst_points: float | None
    best_points: float | None
    reason: str | None = None


class NonInferiority(Record):
    """Is the adapter at most `margin_points` worse?"""

    margin_points: float
    interval: str = Field(description="Name of the interval whose lower bound decides.")
    lower_points: float | None
    shown: bool | None = Field(description="True where the lower bound is above −margin; null: not defined.")
    reason: str | None = None


class Optimism(Record):
    """How much picking the best checkpoint on these very tasks flatters it."""

    on: Literal["validation", "heldout", "final", "unknown"] = Field(description="Where the checkpoint was picked.")
    candidates: int | None = Field(None, description="Checkpoints that were looked at.")
    optimism_points: float | None = Field(description="Expected gain by picking alone; 0 unless picked on held-out.")
    method: Literal["bootstrap", "analytic", "none"]
    low_points: float | None = Field(None, description="The same if checkpoints differed on half as many tasks.")
    high_points: float | None = Field(
        None, description="The same if checkpoints succeeded independently of each other."
    )
    reason: str | None = None


class TaskOutcome(Record):
    """One pair; means over attempts where there are several."""

    task_id: str
    difficulty: str | None
    cluster: str | None
    base_solved: float
    adapter_solved: float
    base_tool_calls: float | None
    adapter_tool_calls: float | None


class Comparison(Record):
    """Everything that is known of one adapter against its base on one suite."""

    schema_version: Literal[1] = 1
    kind: Literal["measured", "reported"]
    suite: str
    harness: str | None
    confidence: float = Field(description="Level of every interval, as a fraction.")
    tasks_in_suite: int | None = Field(description="Tasks of the index, or all tasks named on either side.")
    n: int = Field(description="Tasks scored on both sides.")
    attempts_per_task: int = Field(description="Most graded attempts of any task on either side.")
    base: Side
    adapter: Side
    table: Table | None = Field(description="Null with several attempts per task.")
    difference_points: float | None
    intervals: dict[str, Interval] = Field(description="By name; `normal` is the headline, `tango` the score one.")
    mcnemar: McNemar
    calls: Calls
    power: Power
    bounds: Bounds
    non_inferiority: NonInferiority
    selection: Optimism
    by_difficulty: list[Outcomes] = Field(description="Empty where no difficulty is known or attempts are several.")
    clusters: int | None = Field(description="Source data sets among the pairs; null where unknown.")
    tasks: list[TaskOutcome] = Field(description="The pairs, by task_id; empty for reported counts.")
    notes: list[str] = Field([], description="What a reader must know, one sentence each.")
