"""Questions over one CSV file, their answers, and the one-line commands that compute them.

The world is closed on purpose: a policy of a million parameters can be at home in it after minutes of training. It
knows no other wording and no other name.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from scripts.demo.vocabulary import ANSWER_FILES, CATEGORIES, FILES, NUMERIC_COLUMNS

QUESTIONS: dict[str, tuple[str, ...]] = {
    "sum": (
        "What is the sum of {column} in {file}?",
        "Compute the total {column} over all rows of {file}.",
        "Add up the {column} column of {file}.",
    ),
    "mean": (
        "What is the average {column} in {file}, rounded to 2 decimals?",
        "Compute the mean of {column} in {file}, rounded to 2 decimals.",
    ),
    "max": ("What is the highest {column} in {file}?", "Find the maximum {column} in {file}."),
    "min": ("What is the lowest {column} in {file}?", "Find the minimum {column} in {file}."),
    "count": (
        "How many rows of {file} have {category} equal to {value}?",
        "Count the rows in {file} where {category} is {value}.",
    ),
    "sum_where": (
        "What is the total {column} in {file} for rows where {category} is {value}?",
        "Sum the {column} column of {file} over rows with {category} equal to {value}.",
    ),
    "top": (
        "Which {category} has the highest total {column} in {file}?",
        "In {file}, find the {category} with the largest sum of {column}.",
    ),
    "distinct": (
        "How many different values of {category} are in {file}?",
        "Count the distinct {category} values in {file}.",
    ),
}
"""Wordings of each kind of question."""

REQUESTS = ("Write only the answer to {answer_file}.", "Save just the answer in {answer_file}.")
"""What every instruction ends with."""

EXPRESSIONS: dict[str, str] = {
    "sum": "sum(int(r['{column}']) for r in R)",
    "mean": "round(sum(int(r['{column}']) for r in R)/len(R),2)",
    "max": "max(int(r['{column}']) for r in R)",
    "min": "min(int(r['{column}']) for r in R)",
    "count": "sum(r['{category}']=='{value}' for r in R)",
    "sum_where": "sum(int(r['{column}']) for r in R if r['{category}']=='{value}')",
    "distinct": "len(set(r['{category}'] for r in R))",
    "rows": "len(R)",
    "top": "max(set(r['{category}'] for r in R),key=lambda g:sum(int(r['{column}']) for r in R if r['{category}']==g))",
}
"""Python over R, the rows as dictionaries, that computes each kind of answer; nobody asks for `rows`."""

COMMAND_START = "python3 -c \"import csv;R=list(csv.DictReader(open('{file}')));print("
COMMAND_END = ')"'
COMMAND_REDIRECT = " > {answer_file}"

WRONG_KIND: dict[str, str] = {
    "sum": "mean",
    "mean": "sum",
    "max": "sum",
    "min": "max",
    "count": "distinct",
    "distinct": "rows",
    "sum_where": "count",
    "top": "distinct",
}
"""The kind that a careless expert computes instead; it takes no name that the question does not give."""

LEVELS: dict[str, int] = {
    "sum": 1,
    "max": 1,
    "min": 1,
    "mean": 2,
    "count": 2,
    "distinct": 2,
    "sum_where": 3,
    "top": 3,
}
"""Level of each kind on the scale of 1 to 5 that SmolDataEnvs uses; 3 is medium, below is easy."""

ROLE_SHARES = {"train": 50, "validation": 15, "heldout": 35}
"""Percent of all questions that belong to each role. The demo policy learns from those of `train` only."""

Row = dict[str, str | int]


@dataclass(frozen=True)
class Question:
    """What is asked, apart from its wording."""

    kind: str
    file: str
    column: str
    category: str
    value: str

    def names(self, part: str) -> bool:
        """Whether the question is about a part: ``column``, ``category`` or ``value``."""
        return f"{{{part}}}" in EXPRESSIONS[self.kind]

    def role(self) -> str:
        """The one role whose tasks may ask this, by hash: no question is shared between roles, whatever its data."""
        asked = [self.kind, self.file] + [
            getattr(self, name) for name in ("column", "category", "value") if self.names(name)
        ]
        bucket = int.from_bytes(hashlib.sha256("|".join(asked).encode()).digest()[:8], "big") % 100
        for role, share in ROLE_SHARES.items():
            if bucket < share:
                return role
            bucket -= share
        raise AssertionError("the shares sum to 100")


@dataclass(frozen=True)
class Task:
    """A question with a wording, a file for the answer, and the data."""

    question: Question
    wording: str
    answer_file: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def instruction(self) -> str:
        """The task as the agent is told it."""
        return self.wording.format(answer_file=self.answer_file, **vars(self.question))

    def csv(self, lines: int | None = None) -> str:
        """The data file, or its first lines, header included."""
        text = [",".join(self.columns), *(",".join(str(row[name]) for name in self.columns) for row in self.rows)]
        return "\n".join(text[:lines]) + "\n"

    def answer(self, kind: str | None = None) -> str | None:
        """What the command for a kind prints (the task's own by default); None where the top category is a tie."""
        return answer(self.question, self.rows, kind or self.question.kind)

    def command(self, kind: str | None = None, save: bool = True) -> str:
        """The shell command that computes a kind of answer and saves it, or only prints it."""
        text = COMMAND_START + EXPRESSIONS[kind or self.question.kind] + COMMAND_END
        if save:
            text += COMMAND_REDIRECT
        return text.format(answer_file=self.answer_file, **vars(self.question))


def answer(question: Question, rows: tuple[Row, ...], kind: str) -> str | None:
    """The answer of one kind, as the command for it prints it; None where the top category is a tie."""
    chosen = [row for row in rows if row[question.category] == question.value]
    numbers = [int(row[question.column]) for row in rows]
    if kind == "sum":
        return str(sum(numbers))
    if kind == "mean":
        return str(round(sum(numbers) / len(numbers), 2))
    if kind == "max":
        return str(max(numbers))
    if kind == "min":
        return str(min(numbers))
    if kind == "count":
        return str(len(chosen))
    if kind == "sum_where":
        return str(sum(int(row[question.column]) for row in chosen))
    if kind == "distinct":
        return str(len({row[question.category] for row in rows}))
    if kind == "rows":
        return str(len(rows))
    if kind == "top":
        totals: dict[str, int] = {}
        for row, number in zip(rows, numbers, strict=True):
            name = str(row[question.category])
            totals[name] = totals.get(name, 0) + number
        best = [name for name, total in totals.items() if total == max(totals.values())]
        return best[0] if len(best) == 1 else None
    raise ValueError(f"no kind of question is called {kind!r}; known: {', '.join(EXPRESSIONS)}")


def draw_task(rng: random.Random, role: str) -> Task:
    """Draw a task of a role whose answer no careless command of this world finds by luck.

    Tasks are drawn anew until their answer is unique, is not 0, and differs from what every other kind of question
    over the same columns would give.
    """
    while True:
        categories = rng.sample(list(CATEGORIES), rng.randint(1, 3))
        numeric = rng.sample(NUMERIC_COLUMNS, rng.randint(2, 4))
        category = rng.choice(categories)
        question = Question(
            kind=rng.choice(list(QUESTIONS)),
            file=rng.choice(FILES),
            column=rng.choice(numeric),
            category=category,
            value=rng.choice(CATEGORIES[category]),
        )
        if question.role() != role:
            continue
        columns = [*categories, *numeric]
        rng.shuffle(columns)
        rows = tuple(
            {name: rng.choice(CATEGORIES[name]) if name in CATEGORIES else rng.randint(1, 99) for name in columns}
            for _ in range(rng.randint(8, 40))
        )
        gold = answer(question, rows, question.kind)
        if gold is None or not _sound(gold, [answer(question, rows, k) for k in EXPRESSIONS if k != question.kind]):
            continue
        wording = f"{rng.choice(QUESTIONS[question.kind])} {rng.choice(REQUESTS)}"
        return Task(question, wording, rng.choice(ANSWER_FILES), tuple(columns), rows)


def _sound(gold: str, others: list[str | None]) -> bool:
    """Whether an answer is not empty, not zero, and not near what another kind of command gives."""
    try:
        number = float(gold)
    except ValueError:
        return gold not in others
    numbers = [float(other) for other in others if other is not None and other[0].isdigit()]
    return number != 0 and all(abs(number - other) > 0.02 * abs(number) for other in numbers)
