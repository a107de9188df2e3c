"""Facts of a published card, taken from ``config/reported.yaml`` and from the comparisons that its figures imply."""

from __future__ import annotations

from scripts.card.facts import (
    Base,
    Card,
    CardError,
    Checkpoint,
    Gguf,
    Harness,
    Measured,
    Repositories,
    Serving,
    Source,
    Suite,
    Training,
)
from scripts.stats.reported_tables import FoundTables
from scripts.study.reported import Reported, ReportedCard


def collect_reported(reported: Reported, found: FoundTables, harness: str, config: str) -> Card:
    """All facts of one published card.

    :param reported: the published facts.
    :param found: the tables found behind the printed rows, with their comparisons.
    :param config: config file as the card names it.
    :raises CardError: no such card, or a row without a comparison.
    """
    if harness not in reported.cards:
        raise CardError(f"harness {harness!r} has no card in {config}; cards: {', '.join(reported.cards)}")
    card = reported.cards[harness]
    rows = [row for row in found.rows if row.harness == harness]
    if len(rows) != len(card.rows):
        raise CardError(
            f"{harness}: {len(rows)} comparisons for {len(card.rows)} printed rows; derive the tables again"
        )
    sources = {
        name: Source(file=config, config=key)
        for name, key in {
            **dict.fromkeys(("kind", "study", "config", "target", "seed", "notes", "curve", "files"), "kind"),
            **dict.fromkeys(("harness", "repositories", "checkpoint", "published"), f"cards.{harness}"),
            **dict.fromkeys(("base", "task_family", "datasets", "suites", "serving", "gguf", "training"), "(the file)"),
            "script": "training.script",
            "training.tasks_trained": f"cards.{harness}.tasks_trained",
        }.items()
    } | {"comparisons": Source(file="tables.json", rows=len(rows))}
    return Card(
        kind="reported",
        study=reported.name,
        config=config,
        target=f"{reported.outdir}/card_{harness}.md",
        seed=None,
        harness=Harness(name=harness, version=card.harness.version),
        base=_base(reported),
        repositories=Repositories(adapter=card.repository, gguf=card.gguf_repository, served_name=card.alias),
        task_family=reported.task_family,
        datasets=reported.datasets,
        suites=_suites(reported, card),
        comparisons=[
            Measured(suite=row.comparison.suite, comparison=row.comparison, calls_base={}, calls_adapter={})
            for row in rows
        ],
        checkpoint=Checkpoint(
            step=card.step,
            of_steps=reported.training.steps,
            picked_on=card.picked_on,
            suites=[card.rows[0].suite] if card.picked_on == "heldout" else [],
            rule=None,
            candidates=[],
            candidate_count=card.candidates,
        ),
        training=_training(reported, card),
        curve=[],
        serving=_serving(reported),
        gguf=Gguf(
            adapter_file=card.gguf_file,
            base_repository=reported.gguf.base_repository,
            base_file=reported.gguf.base_file,
            server=reported.gguf.server,
            arguments=[],
            context=reported.gguf.context,
            plugin=bool(card.llama_commands),
            fidelity=None,
            reevaluated=reported.gguf.reevaluated,
        ),
        files=[],
        versions={},
        notes=[],
        script=reported.training.script,
        published=card.source,
        sources=sources,
    )


def _base(reported: Reported) -> Base:
    base = reported.base
    return Base(
        hub_id=base.hub_id,
        title=base.title,
        on_hub=True,
        built_here=False,
        revision=None,
        parameters=None,
        sha256=None,
        license=base.license,
        license_name=base.license_name,
        license_link=base.license_link,
    )


def _suites(reported: Reported, card: ReportedCard) -> list[Suite]:
    suites = []
    for number, (name, suite) in enumerate(reported.suites.items()):
        suites.append(
            Suite(
                name=name,
                role="heldout",
                title=None,
                hub_id=suite.hub_id,
                revision=None,
                seed=None,
                tasks=suite.tasks,
                difficulties=suite.difficulties,
                min_index=suite.min_index or 0,
                what=suite.kind if number else None,
                trained_tasks=None,
            )
        )
        suites.append(
            Suite(
                name=f"{name}-train",
                role="train",
                title=f"the {suite.title} tasks",
                hub_id=suite.hub_id,
                revision=None,
                seed=None,
                tasks=None,
                difficulties=[],
                min_index=0,
                trained_tasks=card.tasks_trained if suite.reached_in_training else 0,
            )
        )
    return suites


def _training(reported: Reported, card: ReportedCard) -> Training:
    training, links = reported.training, reported.links

    def link(name: str, key: str) -> str:
        return f"[{name}]({links[key]})" if key in links else name

    return Training(
        learning_rate=training.learning_rate,
        rank=training.rank,
        alpha=training.alpha,
        target_modules="all linear layers" if training.target_modules == "all-linear" else training.target_modules,
        rollouts_per_task=training.rollouts_per_task,
        microbatches=training.microbatches,
        token_budget=training.token_budget,
        max_staleness=training.max_staleness,
        bonus_weight=training.bonus_weight,
        bonus_calls=None,
        temperature=training.temperature,
        call_budget=training.call_budget,
        agent_timeout_s=training.agent_timeout_s,
        environment=f"{link('Harbor', training.tasks)} tasks served by {link('OpenEnv', training.server)}, rollouts in "
        f"{training.sandbox}, tool calls screened by {link(training.screening, training.screening)}",
        hardware=f"{training.hardware} on {link(training.hardware_service, training.hardware_service)}: "
        f"{training.hardware_use}",
        tasks_trained=card.tasks_trained,
        wall_s=None,
        resumed=None,
        rollouts=None,
        unscored={},
        sync=None,
    )


def _serving(reported: Reported) -> Serving:
    """The printed arguments; those of the adapter are put in by the command itself."""
    lines = [line for line in reported.serving.arguments if "--max-lora-rank" not in line]
    with_rank = next((line for line in reported.serving.arguments if "--max-lora-rank" in line), None)
    if with_rank is None:
        raise CardError("serving.arguments: --max-lora-rank is missing; the published command has it")
    return Serving(
        environment={},
        arguments=lines,
        max_lora_rank=int(with_rank[with_rank.index("--max-lora-rank") + 1]),
        max_model_len=reported.serving.max_model_len,
        max_output_tokens=None,
        example=reported.serving.example,
        example_is_task=False,
    )
