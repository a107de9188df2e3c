"""The limitations that a study's own data show, and what was left out of its comparisons."""

from __future__ import annotations

from scripts.card.facts import Card
from scripts.card.formats import causes, count, percent, plain, plural, signed
from scripts.card.harness_use import HARNESS_USE
from scripts.card.wording import level, name_of, picked, verdict
from scripts.stats.records import Comparison


def limitations(card: Card) -> list[tuple[str, str]]:
    """(title, text) of each limitation that the study's own data show."""
    use = HARNESS_USE[card.harness.name]
    main = card.comparisons[0]
    found = [("Small evaluation", small_evaluation(main.comparison))]
    calls = main.comparison.calls
    if calls.change_percent is not None and calls.low_percent is None:
        why = f": {calls.reason}" if calls.reason else ""
        found.append(("Tool calls", f"There is no interval for the change in tool calls{why}."))
    found.append(("One task family", one_family(card)))
    for suite in (suite for suite in card.suites if suite.role == "train" and suite.trained_tasks == 0):
        found.append(
            (
                "Unseen in training",
                f"None of {name_of(suite)} was reached in training up to this checkpoint, so what it does on such "
                "tasks is transfer from the others.",
            )
        )
    if card.base.built_here:
        found.append(
            (
                "Closed world",
                "The base model is a demonstration: it knows one family of questions about small tables, in one "
                "wording. New tables of that family are held-out tasks; anything else is beyond it.",
            )
        )
    found.append(
        (
            "One harness",
            f"It was trained inside the prompts and tools of {use.title}. Under another agent nothing was measured "
            "here; it may be no better than the base model, or worse.",
        )
    )
    if card.checkpoint.picked_on == "heldout":
        found.append(("Selection", picked(card)))
    if card.gguf and not card.gguf.reevaluated:
        found.append(("GGUF", gguf_note(card)))
    found.append(("License", license_note(card)))
    return found + [("Note", note) for note in card.notes]


def small_evaluation(comparison: Comparison) -> str:
    """What this many tasks can show."""
    normal = comparison.intervals.get("normal")
    half = normal.half_width_points if normal else None
    text = f"{comparison.n} tasks were compared"
    if half is not None:
        text += f": the {level(comparison)} interval of the paired difference is ±{plain(half)} points"
    detectable = comparison.power.detectable_points
    if detectable is not None:
        text += (
            f"; a true difference below {plain(detectable)} points would be missed "
            f"more than {percent(100 * (1 - comparison.power.power), 0)} of the time"
        )
    return text + "."


def one_family(card: Card) -> str:
    """What the tasks are, and what the other suites showed."""
    text = f"The adapter was trained on {card.task_family}, and the first row measures it on the same kind."
    for measured in card.comparisons[1:]:
        title = name_of(card.suite(measured.suite))
        if verdict(measured.comparison) == "more":
            text += f" On {title} it improves on the base model too."
        else:
            text += f" On {title} no improvement on the base model could be shown."
    return text


def gguf_note(card: Card) -> str:
    """What is known of the GGUF files."""
    fidelity = card.gguf.fidelity if card.gguf else None
    if fidelity is None:
        return "The GGUF files have not been evaluated again."
    return (
        f"The GGUF files were compared with the evaluated adapter on {count(fidelity.tokens)} tokens of "
        f"{count(fidelity.turns)} recorded turns; the agent's tasks were not run again with them."
    )


def license_note(card: Card) -> str:
    """License of base and adapter."""
    base = card.base
    if base.license != "other":
        return f"{base.title} is under the license `{base.license}`, and so is this adapter."
    text = f"{base.title} is under [{base.license_name}]({base.license_link}), and so is this adapter."
    if "non-commercial" in (base.license_name or "").lower():
        text += " It forbids commercial use."
    return text


def dropped(comparison: Comparison) -> str | None:
    """Pairs that were left out, by side and cause, with the bounds; None where nothing was."""
    bounds = comparison.bounds
    if not bounds.dropped_pairs:
        return None
    sides = [
        f"{label}: {causes(side.dropped)}"
        for label, side in (("base", comparison.base), ("adapter", comparison.adapter))
        if any(side.dropped.values())
    ]
    text = f"{plural(bounds.dropped_pairs, 'task')} without a grade on one side or both left out"
    text += f" ({'; '.join(sides)})" if sides else ""
    if bounds.worst_points is not None and bounds.best_points is not None:
        text += (
            f". Had all gone against the adapter, the difference would be {signed(bounds.worst_points)} points; "
            f"all for it, {signed(bounds.best_points)}"
        )
    return text + "."
