"""The configuration of a study: one source for defaults, validation and ``config/schema.json``.

Every key that a study's YAML file may hold is a field here, with its unit in its description.
Unknown keys and numbers that YAML read as text (``1e-5`` without a point) are errors that name the key.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

NAME = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
HUB_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"
REVISION = r"^[0-9a-f]{40}$"
HUB_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

PositiveInt = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Role = Literal["train", "validation", "heldout"]
Difficulty = Literal["easy", "medium", "hard"]


class ConfigError(ValueError):
    """A study's config cannot be used; the message names the key and what to do."""


class Section(BaseModel):
    """Base of every section: unknown keys are refused, types are not coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DemoPolicy(Section):
    """Recipe of the tiny policy that the pipeline builds itself (a Qwen3 of about a million parameters)."""

    hidden_size: PositiveInt = Field(128, multiple_of=32, description="Width of the model; a multiple of 32.")
    layers: PositiveInt = Field(4, description="Number of transformer layers.")
    transcripts: PositiveInt = Field(7000, description="Experts' transcripts to train on.")
    steps: PositiveInt = Field(800, description="Optimizer steps; the first 200 see commands only.")
    batch_tokens: PositiveInt = Field(2048, description="Tokens in one batch.")
    wrong_fraction: Fraction = Field(0.38, description="Fraction of transcripts whose aggregate is wrong.")
    waste: Annotated[float, Field(ge=0, le=2)] = Field(1.0, description="How wasteful the experts are, 0 to 2.")
    threads: PositiveInt = Field(1, description="Torch threads; 1 leaves a core for llama.cpp's build.")


class Policy(Section):
    """The base model, which is the policy before training."""

    source: Literal["demo", "hub", "path"] = Field("demo", description="Built here, pinned on the Hub, or a folder.")
    hub_id: str = Field(
        "harness-cards/demo-policy",
        pattern=HUB_ID,
        description="Hub id that the card and the adapter name as base_model, even if the files come from a folder.",
    )
    revision: str | None = Field(None, pattern=REVISION, description="Commit of the hub model; required for `hub`.")
    path: str | None = Field(None, description="Folder with the model; required for `path`.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Precision in engine and trainer.")
    chat_template: str | None = Field(None, description="File that replaces the model's own chat template.")
    enable_thinking: bool | None = Field(
        None, description="Sent with every request where the template knows it; null for templates that do not."
    )
    license: str = Field("mit", description="License id for the card; for `hub` it must be the base model's.")
    license_name: str | None = Field(None, description="Name of the license where `license` is `other`.")
    license_link: str | None = Field(None, description="Address of the license's text where `license` is `other`.")
    demo: DemoPolicy = Field(DemoPolicy(), description="Recipe of the demo policy; used by source `demo` only.")

    @model_validator(mode="after")
    def _source_is_complete(self) -> Policy:
        if self.source == "hub" and self.revision is None:
            raise ValueError("source is hub: set `revision` to the 40-digit commit of the model")
        if self.source == "path" and self.path is None:
            raise ValueError("source is path: set `path` to the model's folder")
        if self.license == "other" and not (self.license_name and self.license_link):
            raise ValueError("license is other: set `license_name` and `license_link`, the Hub asks for both")
        return self


class Engine(Section):
    """How vLLM serves the policy, the same in training and evaluation."""

    max_model_len: PositiveInt = Field(8192, description="Context in tokens.")
    tool_call_parser: str = Field("qwen3_coder", description="vLLM's parser for tool calls.")
    reasoning_parser: str | None = Field(None, description="vLLM's parser for reasoning; null for none.")
    max_lora_rank: PositiveInt = Field(32, description="Largest LoRA rank that the engine accepts.")
    tensor_parallel: PositiveInt = Field(1, description="GPUs for one engine.")
    max_num_seqs: PositiveInt = Field(16, description="Sequences decoded at once.")
    enforce_eager: bool = Field(True, description="No graph capture: quick start; false on GPUs.")
    kv_cache_gib: PositiveFloat | None = Field(1.0, description="Key-value cache in GiB on CPUs; null on GPUs.")
    gpu_memory_utilization: Fraction | None = Field(None, description="vLLM's flag of that name; null on CPUs.")
    start_timeout_s: PositiveFloat = Field(300.0, description="Seconds until a silent start is an error.")
    extra_args: list[str] = Field([], description="Further arguments of `vllm serve`, word by word.")


class Suite(Section):
    """A named selection of tasks with a role."""

    role: Role = Field(description="What the tasks are for; tasks of different roles never overlap.")
    source: Literal["generated", "folder", "hub"] = Field("generated", description="Where the tasks come from.")
    seed: Count = Field(0, description="Seed of generated tasks; other suites need another seed.")
    hub_id: str | None = Field(None, pattern=HUB_ID, description="Data set of tasks on the Hub.")
    revision: str | None = Field(None, pattern=REVISION, description="Commit of the data set.")
    path: str | None = Field(None, description="Folder that holds task folders, for source `folder`.")
    title: str | None = Field(None, description="How the card calls the suite; its name if null.")
    cluster: str | None = Field(
        None, description="Metadata key that names a task's source data set, for cluster-robust intervals."
    )
    min_index: Count = Field(0, description="First index that is taken.")
    max_index: Count | None = Field(None, description="Index before which to stop; null for none.")
    difficulty: list[Difficulty] = Field(["easy", "medium"], min_length=1, description="Difficulties that are taken.")
    limit: PositiveInt | None = Field(None, description="At most this many tasks, in order of index.")

    @model_validator(mode="after")
    def _source_is_complete(self) -> Suite:
        if self.source == "hub" and not (self.hub_id and self.revision):
            raise ValueError("source is hub: set `hub_id` and `revision`")
        if self.source == "folder" and not self.path:
            raise ValueError("source is folder: set `path`")
        if self.source == "generated" and self.limit is None:
            raise ValueError("source is generated: set `limit`, the number of tasks")
        if self.max_index is not None and self.max_index <= self.min_index:
            raise ValueError(f"max_index {self.max_index} leaves no task from min_index {self.min_index} on; raise it")
        return self


class Sandbox(Section):
    """Where the agent's commands run."""

    environment: str = Field(
        "bubblewrap", pattern=r"^[a-z0-9_:.-]+$", description="`bubblewrap`, ours, or the name of a Harbor environment."
    )
    options: dict[str, str | int | float | bool] = Field({}, description="Arguments of that environment.")
    preflight_tasks: PositiveInt = Field(1, description="Tasks of each suite that the oracle and nop agents try.")


class Rollout(Section):
    """Limits and sampling of one agent session, the same in training and evaluation."""

    temperature: Annotated[float, Field(ge=0, le=2)] = Field(0.8, description="Sampling temperature; above 0.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Nucleus sampling; 1 is off.")
    top_k: Count = Field(0, description="Top-k sampling; 0 is off.")
    max_output_tokens: PositiveInt = Field(160, description="Tokens in one reply.")
    call_budget: PositiveInt = Field(15, description="Model calls in one attempt.")
    agent_timeout_s: PositiveFloat = Field(60.0, description="Seconds for the agent; the grade still counts.")
    verifier_timeout_s: PositiveFloat = Field(30.0, description="Seconds for the verifier.")

    def untrainable(self) -> str | None:
        """Why a trainer cannot recompute the log-probabilities of such sampling; None where it can."""
        if self.temperature <= 0:
            return "rollout.temperature: 0 cannot be trained on; write a temperature above 0"
        if self.top_p != 1.0 or self.top_k != 0:
            return (
                f"rollout: top_p {self.top_p} and top_k {self.top_k} truncate the distribution, and the capture's "
                "log-probabilities then differ from the trainer's; write top_p 1.0 and top_k 0"
            )
        return None


class Lora(Section):
    """Shape of the adapter: plain LoRA, which vLLM serves and llama.cpp converts."""

    rank: PositiveInt = Field(16, description="Rank r.")
    alpha: PositiveInt = Field(32, description="Scale numerator; the adapter is scaled by alpha / rank.")
    dropout: Fraction = Field(0.0, description="Dropout while training.")
    target_modules: str | list[str] = Field("all-linear", description="PEFT's target_modules.")
    use_rslora: bool = Field(False, description="Refused: llama.cpp scales rank-stabilised adapters wrongly.")
    use_dora: bool = Field(False, description="Refused: vLLM does not serve DoRA.")
    modules_to_save: list[str] = Field([], description="Refused: neither vLLM nor GGUF carries whole modules.")
    rank_pattern: dict[str, int] = Field({}, description="Refused: GGUF has one rank per adapter.")
    alpha_pattern: dict[str, int] = Field({}, description="Refused: GGUF has one alpha per adapter.")


class Training(Section):
    """Reinforcement learning of the adapter (TRL's AsyncGRPO)."""

    recipe_version: PositiveInt = Field(1, description="Raise it when a change of code should train anew.")
    steps: PositiveInt = Field(24, description="Optimizer steps.")
    checkpoint_every: PositiveInt = Field(6, description="Steps between saved checkpoints; the last one is saved too.")
    learning_rate: PositiveFloat = Field(2.0e-3, description="Peak learning rate (write 1.0e-5, not 1e-5).")
    rollouts_per_task: Annotated[int, Field(ge=2)] = Field(8, description="Group size G.")
    microbatches: PositiveInt = Field(4, description="Micro-batches in a step.")
    token_budget: PositiveInt = Field(1024, description="Unique tokens in a micro-batch, after prefix packing.")
    max_staleness: Count = Field(4, description="Policy versions that a sample may be old.")
    concurrency: PositiveInt = Field(4, description="Rollouts in flight.")
    bonus_weight: Fraction = Field(0.1, description="Weight of the tool-efficiency bonus of solved tasks.")
    bonus_calls: PositiveInt = Field(15, description="Tool calls at which the bonus reaches zero.")
    no_progress_timeout_s: PositiveFloat = Field(900.0, description="Seconds without a finished rollout: an error.")
    gradient_checkpointing: bool = Field(False, description="Saves memory, costs time.")
    threads: PositiveInt = Field(1, description="Torch threads of the trainer on CPUs.")
    gpus: PositiveInt = Field(1, description="GPUs of the trainer, beside the engine's.")
    lora: Lora = Field(Lora(), description="Shape of the adapter.")

    @model_validator(mode="after")
    def _adapter_can_be_carried(self) -> Training:
        for key, why in REFUSED_LORA.items():
            if getattr(self.lora, key):
                raise ValueError(f"lora.{key}: {why}; remove the key")
        targets = self.lora.target_modules
        if not targets:
            raise ValueError("lora.target_modules: names no module; write all-linear, or the modules")
        for name in [targets] if isinstance(targets, str) else targets:
            if re.search(r"lm_head|embed", name):
                raise ValueError(f"lora.target_modules: {name!r} is skipped or aborts in GGUF conversion; leave it out")
        return self

    @property
    def checkpoints(self) -> list[int]:
        """Steps at which a checkpoint is saved, ascending; the last step always is one."""
        return sorted({*range(self.checkpoint_every, self.steps + 1, self.checkpoint_every), self.steps})


REFUSED_LORA = {
    "use_rslora": "llama.cpp scales rank-stabilised adapters by the wrong factor after conversion",
    "use_dora": "vLLM cannot serve DoRA adapters",
    "modules_to_save": "neither vLLM's adapter loading nor GGUF carries whole modules",
    "rank_pattern": "a GGUF adapter has one rank",
    "alpha_pattern": "a GGUF adapter has one alpha",
}


class Evaluation(Section):
    """How policies are measured."""

    recipe_version: PositiveInt = Field(1, description="Raise it when a change of code should measure anew.")
    attempts: PositiveInt = Field(1, description="Attempts per task.")
    concurrency: PositiveInt = Field(4, description="Attempts at once.")
    retries: Count = Field(2, description="Further tries of an attempt that ended by infrastructure.")
    gpus: PositiveInt = Field(1, description="GPUs of an evaluation.")


class Selection(Section):
    """How the published checkpoint is chosen."""

    on: Literal["validation", "heldout", "final"] = Field(
        "validation",
        description="Best on the validation suites, best on the held-out ones (optimistic: the card says so), or last.",
    )

    standard_errors: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1.0,
        description="Checkpoints this many standard errors below the most solved count as equal; the fewest calls win.",
    )

    @model_validator(mode="before")
    @classmethod
    def _yaml_reads_on_as_true(cls, data: Any) -> Any:
        """YAML 1.1 reads a bare ``on`` as the truth value; here it is the key of that name."""
        if isinstance(data, dict) and True in data:
            return {"on" if key is True else key: value for key, value in data.items()}
        return data


class Comparison(Section):
    """The paired comparison of adapter and base."""

    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.95, description="Level of every interval.")
    margin_points: PositiveFloat = Field(5.0, description="Non-inferiority margin in points of pass@1.")
    bootstrap_draws: PositiveInt = Field(10000, description="Draws of the task bootstrap.")
    power: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.8, description="Power of the minimum detectable effect.")


class Gguf(Section):
    """The files for llama.cpp."""

    enabled: bool = Field(True, description="Convert and measure; false leaves the GGUF part out of the card.")
    outtype: Literal["f32", "f16", "bf16"] = Field("f16", description="Type of the converted weights.")
    fidelity_turns: PositiveInt = Field(48, description="Recorded held-out turns that the fidelity is measured on.")
    pre_tokenizer: str | None = Field(
        None, description="llama.cpp's pre-tokenizer name where its converter does not know the tokenizer's hash."
    )


class Card(Section):
    """What the card says beyond the measured facts."""

    owner: str = Field(
        "harness-cards", pattern=HUB_NAME, description="Hub user or organisation of the two repositories."
    )
    model_name: str = Field("demo-policy", pattern=HUB_NAME, description="Name before -<harness> and -<harness>-GGUF.")
    title: str = Field("Demo policy", description="How the card calls the base model.")
    alias: str = Field("demo-harbor", pattern=NAME, description="Name before -<harness> under which users serve it.")
    task_family: str = Field("data-analysis tasks", description="What the tasks are, for the first paragraph.")
    environment: str = Field("", description="Free words on sandboxes and services for the training table.")
    hardware: str = Field("2 CPU cores, no GPU", description="Hardware for the training table.")
    gguf_base_repo: str | None = Field(
        None, pattern=HUB_ID, description="Hub repository with a GGUF of the base; ours if null."
    )
    gguf_base_file: str | None = Field(None, description="File in that repository.")
    context: PositiveInt = Field(16384, description="Context in the llama.cpp command.")
    notes: list[str] = Field([], description="Further limitations, one sentence each.")


class Study(Section):
    """A whole study."""

    kind: Literal["study"] = Field("study", description="`study` here; `reported` in config/reported.yaml.")
    name: str = Field("demo", pattern=NAME, description="Name of the study.")
    outdir: str = Field("results", min_length=1, description="Folder of all outputs.")
    seed: Count = Field(0, description="Seed of training and of the order of tasks.")
    hardware: Literal["cpu", "cuda"] = Field("cpu", description="Which policy environment is used.")
    threads: PositiveInt = Field(2, description="CPU cores of a training or evaluation job.")
    harnesses: list[str] = Field(["pi"], min_length=1, description="Coding agents; one card each.")
    policy: Policy = Policy()
    engine: Engine = Engine()
    suites: dict[Annotated[str, Field(pattern=NAME)], Suite] = Field(description="Suites by name.")
    sandbox: Sandbox = Sandbox()
    rollout: Rollout = Rollout()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    selection: Selection = Selection()
    comparison: Comparison = Comparison()
    gguf: Gguf = Gguf()
    card: Card = Card()

    @model_validator(mode="after")
    def _fits_together(self) -> Study:
        unknown = sorted(set(self.harnesses) - set(HARNESSES))
        if unknown:
            raise ValueError(f"harnesses: {', '.join(unknown)} not known; known: {', '.join(HARNESSES)}")
        if len(set(self.harnesses)) < len(self.harnesses):
            raise ValueError("harnesses: one of them is named twice; name each once")
        if why := self.rollout.untrainable():
            raise ValueError(why)
        if self.rollout.max_output_tokens >= self.engine.max_model_len:
            raise ValueError(
                f"rollout.max_output_tokens {self.rollout.max_output_tokens} leaves no room for a prompt in "
                f"engine.max_model_len {self.engine.max_model_len}; lower the one or raise the other"
            )
        if self.training.lora.rank > self.engine.max_lora_rank:
            raise ValueError(
                f"training.lora.rank {self.training.lora.rank} exceeds engine.max_lora_rank {self.engine.max_lora_rank}"
            )
        for role in ("train", "heldout"):
            if not self.suites_of(role):
                raise ValueError(f"suites: none has role {role}; add one")
        if self.selection.on == "validation" and not self.suites_of("validation"):
            raise ValueError("selection.on is validation, but no suite has role validation; add one, or set `final`")
        if left := self._left_to_the_demo():
            raise ValueError(f"{', '.join(left)}: set them; their defaults describe the demo, not this study")
        seeds: dict[int, str] = {}
        for name, suite in self.suites.items():
            if suite.source == "generated" and seeds.setdefault(suite.seed, name) != name:
                raise ValueError(f"suites: {seeds[suite.seed]} and {name} have the same seed; give each its own")
        return self

    def _left_to_the_demo(self) -> list[str]:
        """Keys that the config leaves at a default which would be untrue of this study."""
        keys: list[tuple[str, Section, str]] = []
        if self.policy.source != "demo":
            keys += [("policy", self.policy, key) for key in ("hub_id", "license")]
            keys += [("card", self.card, key) for key in ("owner", "model_name", "title", "alias", "task_family")]
        if self.hardware == "cuda":
            keys += [("engine", self.engine, key) for key in ("kv_cache_gib", "enforce_eager")]
            keys += [("card", self.card, "hardware")]
        return [f"{name}.{key}" for name, section, key in keys if key not in section.model_fields_set]

    def suites_of(self, role: Role | str) -> list[str]:
        """Names of the suites with that role, in the order of the config."""
        return [name for name, suite in self.suites.items() if suite.role == role]


HARNESSES = ("pi",)


def explain(error: ValidationError, source: str) -> str:
    """One line per fault: file, dotted key, what is wrong, and what to write instead where that is known."""
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"]) or "(the file)"
        message = fault["msg"].removeprefix("Value error, ")
        value = fault.get("input")
        if fault["type"] == "extra_forbidden":
            message = "unknown key; config/README.md lists the known ones"
        elif isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", value):
            message = f"{value!r} is text, not a number; YAML wants a point in it and no quotes, such as 1.0e-5"
        lines.append(f"{source}: {key}: {message}")
    return "\n".join(lines)


def parse_study(data: dict[str, Any], source: str = "config") -> Study:
    """Validate a study's config.

    :param data: the parsed YAML.
    :param source: name of the file for messages.
    :raises ConfigError: one line per fault, each with file, key and what to do.
    """
    try:
        return Study.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, source)) from None
