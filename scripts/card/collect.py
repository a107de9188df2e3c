"""Facts of a measured card, gathered from a study's outputs, each with the file and rows it came from."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scripts.card import serving
from scripts.card.facts import (
    Base,
    Candidate,
    Card,
    CardError,
    Checkpoint,
    Curve,
    Fidelity,
    File,
    Gguf,
    Harness,
    Measured,
    Repositories,
    Serving,
    Source,
    Suite,
    Training,
)
from scripts.card.leaks import ABSOLUTE
from scripts.stats.records import Comparison
from scripts.study.config import Study, explain
from scripts.study.fingerprints import file_sha256

EXAMPLE = "Which region had the highest total of amount in sales.csv?"


SYNC = {"adapter": "the adapter alone, loaded under a new name after each step"}
"""Ways in which training's weights reach the engine, in words."""


class Outputs:
    """The files of a study below its outdir; remembers what was read for which fact."""

    def __init__(self, outdir: Path) -> None:
        self.outdir = outdir
        self.sources: dict[str, Source] = {}

    def path(self, relative: str) -> Path:
        """An existing output.

        :raises CardError: it is not there.
        """
        path = self.outdir / relative
        if not path.exists():
            raise CardError(f"{path}: missing; run the stage that makes it (snakemake {path})")
        return path

    def json(self, relative: str, *facts: str) -> Any:
        """A JSON file, as the source of the facts."""
        path = self.path(relative)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CardError(f"{path}: no JSON ({error}); make it anew") from None
        self.took(relative, None, *facts)
        return value

    def rows(self, relative: str, *facts: str) -> list[dict[str, Any]]:
        """A JSONL file, as the source of the facts; ``rows`` of the source is its number of lines."""
        rows = []
        for number, line in enumerate(self.path(relative).read_text(encoding="utf-8").splitlines(), start=1):
            try:
                rows.append(json.loads(line))
            except ValueError:
                raise CardError(f"{self.outdir / relative} row {number}: no JSON; make the file anew") from None
        self.took(relative, len(rows), *facts)
        return rows

    def took(self, relative: str, rows: int | None, *facts: str) -> None:
        """Note where facts came from."""
        for fact in facts:
            self.sources[fact] = Source(file=relative, rows=rows)

    def configured(self, **keys: str) -> None:
        """Note facts that the study's config holds: dotted fact with ``__`` for the point, and its key."""
        for fact, key in keys.items():
            self.sources[fact.replace("__", ".")] = Source(config=key)


def need(value: dict[str, Any], key: str, where: str) -> Any:
    """A key of a record.

    :raises CardError: it is not there; names file and key.
    """
    if key not in value:
        raise CardError(f"{where}: key {key!r} is missing; make the file anew")
    return value[key]


def collect(study: Study, outdir: Path, harness: str, config: str) -> Card:
    """All facts of the card of one harness.

    :param study: the study's config.
    :param outdir: folder of its outputs.
    :param config: config file as it is named to Snakemake, for the card's last section.
    :raises CardError: an output is missing or is not what it should be; names the file.
    """
    if harness not in study.harnesses:
        raise CardError(f"harness {harness!r} is not in the study; its harnesses: {', '.join(study.harnesses)}")
    out = Outputs(outdir)
    out.configured(
        kind="kind", study="name", config="name", target="outdir", seed="seed", task_family="card.task_family"
    )
    out.configured(repositories="card", harness__name="harnesses", notes="card.notes", script="kind", published="kind")
    checkpoint = _checkpoint(study, out, harness)
    trained, training = _training(study, out, harness, checkpoint.step)
    # The card says that no held-out task was trained on: only with the proof at hand.
    out.path("suites/disjoint.json")
    suites = [_suite(study, out, name, trained) for name in study.suites]
    comparisons = [_measured(out, harness, name, number) for number, name in enumerate(study.suites_of("heldout"))]
    attempts = f"eval/{harness}/base/{comparisons[0].suite}.jsonl"
    head = out.rows(attempts, "harness.version")[0]
    gguf = _gguf(study, out, harness)
    out.configured(datasets="suites")
    target = "OUTDIR" if Path(study.outdir).is_absolute() else study.outdir
    try:
        return Card(
            kind="measured",
            study=study.name,
            config=config,
            target=f"{target}/card_{harness}.md",
            seed=study.seed,
            harness=Harness(name=harness, version=head.get("harness_version")),
            base=_base(study, out),
            repositories=_repositories(study, harness),
            task_family=study.card.task_family,
            datasets=[suite.hub_id for suite in suites if suite.hub_id and suite.trained_tasks],
            suites=suites,
            comparisons=comparisons,
            checkpoint=checkpoint,
            training=training,
            curve=_curve(out, harness),
            serving=_serving(study, out, comparisons[0].suite),
            gguf=gguf,
            files=_files(study, out, harness, gguf),
            versions=_versions(out, harness, attempts, head, gguf),
            notes=study.card.notes,
            sources=out.sources,
        )
    except ValidationError as error:
        raise CardError(explain(error, f"card of {harness}")) from None


def _repositories(study: Study, harness: str) -> Repositories:
    name = f"{study.card.owner}/{study.card.model_name}-{harness}"
    return Repositories(
        adapter=name,
        gguf=f"{name}-GGUF" if study.gguf.enabled else None,
        served_name=f"{study.card.alias}-{harness}",
    )


def _base(study: Study, out: Outputs) -> Base:
    facts = out.json("policy/base.json", "base.sha256", "base.parameters", "base.revision")
    out.configured(base="policy", base__title="card.title", base__on_hub="policy.source")
    out.configured(base__built_here="policy.source")
    policy = study.policy
    return Base(
        hub_id=policy.hub_id,
        title=study.card.title,
        on_hub=policy.source == "hub",
        built_here=policy.source == "demo",
        revision=facts.get("revision") if policy.source == "hub" else None,
        parameters=facts.get("parameters"),
        sha256=need(facts, "sha256", "policy/base.json"),
        license=policy.license,
        license_name=policy.license_name,
        license_link=policy.license_link,
    )


def _suite(study: Study, out: Outputs, name: str, trained: Counter[str]) -> Suite:
    number = list(study.suites).index(name)
    rows = out.rows(f"suites/{name}.jsonl", f"suites.{number}.tasks", f"suites.{number}.difficulties")
    out.configured(**{f"suites__{number}": f"suites.{name}"})
    suite = study.suites[name]
    if suite.role == "train":
        out.sources[f"suites.{number}.trained_tasks"] = out.sources["training.tasks_trained"]
    found = {row.get("difficulty") for row in rows}
    return Suite(
        name=name,
        role=suite.role,
        title=suite.title,
        hub_id=suite.hub_id,
        revision=suite.revision,
        seed=suite.seed if suite.source == "generated" else None,
        tasks=len(rows),
        difficulties=[level for level in ("easy", "medium", "hard") if level in found],
        min_index=suite.min_index,
        trained_tasks=trained[name] if suite.role == "train" else None,
    )


def _measured(out: Outputs, harness: str, suite: str, number: int) -> Measured:
    relative = f"compare/{harness}/{suite}/selected.json"
    data = out.json(relative, f"comparisons.{number}")
    try:
        comparison = Comparison.model_validate(data)
    except ValidationError as error:
        raise CardError(explain(error, str(out.outdir / relative))) from None
    out.took(relative, comparison.n, f"comparisons.{number}")
    tasks = comparison.tasks
    # Where the rows came from is told by `sources`; a path of this machine has no place in a published file.
    sides = {
        side: getattr(comparison, side).model_copy(
            update={"source": getattr(comparison, side).source.model_copy(update={"path": place})}
        )
        for side, place in (
            ("base", f"eval/{harness}/base/{suite}.jsonl"),
            ("adapter", f"eval/{harness}/selected/{suite}.jsonl"),
        )
    }
    return Measured(
        suite=suite,
        comparison=comparison.model_copy(update={"tasks": [], **sides}),
        calls_base=_distribution([task.base_tool_calls for task in tasks]),
        calls_adapter=_distribution([task.adapter_tool_calls for task in tasks]),
    )


def _distribution(calls: list[float | None]) -> dict[str, int]:
    """Tasks by tool calls, rounded where they are means over attempts."""
    counts = Counter(round(value) for value in calls if value is not None)
    return {str(number): counts[number] for number in sorted(counts)}


def _checkpoint(study: Study, out: Outputs, harness: str) -> Checkpoint:
    relative = f"select/{harness}.json"
    facts = out.json(relative, "checkpoint")
    out.configured(checkpoint__of_steps="training.steps", checkpoint__picked_on="selection.on")
    return Checkpoint(
        step=need(facts, "step", relative),
        of_steps=study.training.steps,
        picked_on=study.selection.on,
        suites=[name for name in facts.get("suites", []) if name in study.suites],
        rule=facts.get("rule"),
        candidates=[
            Candidate(
                step=candidate["step"],
                n=candidate["n"],
                solved=candidate["solved"],
                rate_percent=100 * candidate["solved"] / candidate["n"] if candidate["n"] else 0.0,
                tool_calls=candidate.get("tool_calls"),
            )
            for candidate in facts.get("candidates", [])
        ],
        candidate_count=len(facts.get("candidates", [])) or None,
    )


def _training(study: Study, out: Outputs, harness: str, step: int) -> tuple[Counter[str], Training]:
    facts = out.json(f"train/{harness}/training.json", "training.wall_s", "training.resumed", "training.sync")
    rows = out.rows(
        f"train/{harness}/rollouts.jsonl", "training.tasks_trained", "training.rollouts", "training.unscored"
    )
    out.configured(
        training="training", training__temperature="rollout.temperature", training__call_budget="rollout.call_budget"
    )
    out.configured(
        training__agent_timeout_s="rollout.agent_timeout_s",
        training__environment="card.environment",
        training__hardware="card.hardware",
    )
    seen = {(row["suite"], row["task_id"]) for row in rows if row["step"] is not None and row["step"] <= step}
    unscored = Counter(
        (row.get("error") or {}).get("type") or row["status"] for row in rows if row["status"] != "scored"
    )
    training, lora, rollout = study.training, study.training.lora, study.rollout
    targets = lora.target_modules
    return Counter(suite for suite, _ in seen), Training(
        learning_rate=training.learning_rate,
        rank=lora.rank,
        alpha=lora.alpha,
        target_modules="all linear layers" if targets == "all-linear" else ", ".join(targets),
        rollouts_per_task=training.rollouts_per_task,
        microbatches=training.microbatches,
        token_budget=training.token_budget,
        max_staleness=training.max_staleness,
        bonus_weight=training.bonus_weight,
        bonus_calls=training.bonus_calls,
        temperature=rollout.temperature,
        call_budget=rollout.call_budget,
        agent_timeout_s=rollout.agent_timeout_s,
        environment=study.card.environment
        or "[Harbor](https://github.com/laude-institute/harbor) tasks served by "
        f"[OpenEnv](https://github.com/huggingface/OpenEnv), rollouts in {study.sandbox.environment} sandboxes",
        hardware=study.card.hardware,
        tasks_trained=len(seen),
        wall_s=facts.get("wall_s"),
        resumed=facts.get("resumed"),
        rollouts=len(rows),
        unscored=dict(sorted(unscored.items())),
        sync=SYNC.get(facts.get("sync", ""), facts.get("sync")),
    )


def _curve(out: Outputs, harness: str) -> list[Curve]:
    rows = out.rows(f"train/{harness}/train.jsonl", "curve")
    return [Curve(**{field: row.get(field) for field in Curve.model_fields}) for row in rows]


def _serving(study: Study, out: Outputs, suite: str) -> Serving:
    out.configured(serving="engine", serving__max_output_tokens="rollout.max_output_tokens")
    index = out.rows(f"suites/{suite}.jsonl", "serving.example", "serving.example_is_task")
    question = ""
    if index:
        instruction = out.outdir / str(index[0].get("path", "")) / "instruction.md"
        question = instruction.read_text(encoding="utf-8").strip() if instruction.is_file() else ""
    # A longer one, or one with a path that is refused in published files, is no example for a card.
    fits = bool(question) and "\n" not in question and len(question) <= 300 and not ABSOLUTE.search(question)
    return Serving(
        environment={},
        arguments=serving.engine_arguments(study.engine, study.policy, study.rollout),
        max_lora_rank=serving.lora_rank_limit(study.engine.max_lora_rank),
        max_model_len=study.engine.max_model_len,
        max_output_tokens=study.rollout.max_output_tokens,
        example=question if fits else EXAMPLE,
        example_is_task=fits,
    )


def _gguf(study: Study, out: Outputs, harness: str) -> Gguf | None:
    out.configured(gguf="gguf")
    if not study.gguf.enabled:
        return None
    facts = out.json(f"gguf/{harness}/fidelity.json", "gguf.fidelity")
    kind, card = study.gguf.outtype.upper(), study.card
    base_file = card.gguf_base_file or f"{card.model_name}-{kind}.gguf"
    return Gguf(
        adapter_file=f"{card.model_name}-harbor-{harness}-lora-{kind}.gguf",
        base_repository=card.gguf_base_repo or f"{card.owner}/{card.model_name}-{harness}-GGUF",
        base_file=base_file,
        server="llama-server",
        arguments=serving.llama_arguments(study.rollout),
        context=card.context,
        plugin=False,
        fidelity=_fidelity(facts, f"gguf/{harness}/fidelity.json"),
        reevaluated=False,
    )


def _fidelity(facts: dict[str, Any], where: str) -> Fidelity:
    full, control = need(facts, "scale_1", where), need(facts, "scale_0", where)
    return Fidelity(
        turns=need(facts, "turns", where),
        tokens=need(facts, "tokens", where),
        same_texts=(facts.get("tokenization") or {}).get("same"),
        top1_percent=100 * need(full, "top1_agreement", where),
        kl_mean=need(full, "kl_mean", where),
        kl_max=need(full, "kl_max", where),
        control_top1_percent=100 * need(control, "top1_agreement", where),
        control_kl_mean=need(control, "kl_mean", where),
        control_kl_max=need(control, "kl_max", where),
    )


def _files(study: Study, out: Outputs, harness: str, gguf: Gguf | None) -> list[File]:
    adapter = f"adapters/{harness}/selected"
    wanted: list[tuple[Any, str, str]] = [
        ("adapter", "adapter_model.safetensors", f"{adapter}/adapter_model.safetensors"),
        ("adapter", "adapter_config.json", f"{adapter}/adapter_config.json"),
        ("adapter", "chat_template.jinja", "policy/base/chat_template.jinja"),
    ]
    if gguf:
        kind = study.gguf.outtype.upper()
        wanted.append(("gguf", gguf.adapter_file, f"gguf/{harness}/adapter-{kind}.gguf"))
        if study.card.gguf_base_repo is None:
            wanted.append(("gguf", gguf.base_file, f"gguf/base-{kind}.gguf"))
    files = []
    for number, (repository, name, source) in enumerate(wanted):
        path = out.path(source)
        out.took(source, None, f"files.{number}")
        files.append(
            File(repository=repository, name=name, bytes=path.stat().st_size, sha256=file_sha256(path), source=source)
        )
    return files


def _versions(out: Outputs, harness: str, attempts: str, head: dict[str, Any], gguf: Gguf | None) -> dict[str, str]:
    """Versions of what trained, converted and measured; ``head`` is the first row of the file ``attempts``."""
    facts = out.json(f"train/{harness}/training.json", "versions")
    versions = {str(name): str(version) for name, version in (facts.get("versions") or {}).items()}
    if gguf:
        relative = f"gguf/{harness}/fidelity.json"
        for name, version in (out.json(relative).get("versions") or {}).items():
            versions[str(name)] = str(version)
            out.took(relative, None, f"versions.{name}")
    engine = head.get("engine") or {}
    measured = {**((head.get("sandbox") or {}).get("versions") or {}), engine.get("name"): engine.get("version")}
    for name, version in measured.items():
        if name and version and name not in versions:
            versions[name] = str(version)
            out.took(attempts, None, f"versions.{name}")
    return versions
