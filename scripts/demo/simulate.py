"""Tries the policy on tasks of the closed world without agent, engine or sandbox: seconds instead of minutes.

Nothing that the policy says is executed: commands of the closed world are recognised and their output is computed; any
other command fails. It is a check on the recipe, no measurement: those go through the real agent.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

from scripts.demo.experts import Bash, ReadFile, Step
from scripts.demo.grader import matches
from scripts.demo.transcripts import Message, RecordedRequest, opening, turn
from scripts.demo.vocabulary import CATEGORIES
from scripts.demo.world import COMMAND_END, COMMAND_START, EXPRESSIONS, Question, Task, answer, draw_task

CALL = re.compile(r"<tool_call>\s*<function=(\w+)>\s*(.*?)</function>\s*</tool_call>", re.DOTALL)
PARAMETER = re.compile(r"<parameter=(\w+)>\n(.*?)\n</parameter>", re.DOTALL)
MOST_CALLS = 15


@dataclass
class Trial:
    """One task being tried."""

    task: Task
    shown: list[Message]
    saved: str | None = None
    calls: int = 0
    finished: bool = False
    commands: list[str] = field(default_factory=list)

    @property
    def solved(self) -> bool:
        """Whether the saved answer counts."""
        gold = self.task.answer()
        return gold is not None and matches(self.saved or "", gold)

    def run(self, command: str) -> Bash:
        """The output of a command of the closed world; others fail."""
        task = self.task
        file = task.question.file
        name = command.split()[-1] if command.split() else ""
        exists = name == file or (name.endswith("answer.txt") and self.saved is not None)
        content = task.csv() if name == file else f"{self.saved}\n"
        if command == "ls":
            return Bash(command, (["answer.txt\n"] if self.saved is not None else [""])[0] + f"{file}\n")
        if command.startswith(("head -3 ", "cat ", "wc -l ")):
            if not exists:
                tool = command.split()[0]
                return Bash(command, f"{tool}: cannot open '{name}' for reading: No such file or directory\n", True)
            if command.startswith("head"):
                return Bash(command, "".join(content.splitlines(keepends=True)[:3]))
            lines = content.count("\n")
            return Bash(command, content if command.startswith("cat") else f"{lines} {name}\n")
        return self.compute(command)

    def compute(self, command: str) -> Bash:
        """The output of a Python one-liner over the task's rows, saved if the command says so."""
        broken = Bash(command, "SyntaxError: invalid syntax\n", failed=True)
        before, _, target = command.partition(" > ")
        start = re.escape(COMMAND_START).replace(r"\{file\}", r"(?P<file>\S+?)")
        outer = re.fullmatch(start + "(?P<expression>.*)" + re.escape(COMMAND_END), before)
        if not outer or target not in ("", "answer.txt", "/workdir/answer.txt"):
            return broken
        if target:
            self.saved = ""  # the shell empties the file before the command runs
        if outer["file"] != self.task.question.file:
            return Bash(command, f"FileNotFoundError: '{outer['file']}'\n", failed=True)
        for kind, expression in EXPRESSIONS.items():
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\w+)", re.escape(expression), count=0)
            pattern = _later_names_again(pattern)
            inner = re.fullmatch(pattern, outer["expression"])
            if inner:
                printed = self.value(kind, inner.groupdict())
                if printed is None:
                    return Bash(command, "KeyError\n", failed=True)
                if target:
                    self.saved = printed
                return Bash(command, "" if target else f"{printed}\n")
        return broken

    def value(self, kind: str, names: dict[str, str]) -> str | None:
        """The answer of a kind for these names; None where Python would have failed."""
        task = self.task
        given = {name: names.get(name) for name in ("column", "category")}
        if any(name is not None and name not in task.columns for name in given.values()):
            return None
        if given["column"] in CATEGORIES:
            return None
        own = task.question
        category = given["category"] or own.category
        asked = Question(kind, own.file, given["column"] or own.column, category, names.get("value", own.value))
        return answer(asked, task.rows, kind) or str(task.rows[0][category])


def _later_names_again(pattern: str) -> str:
    """Turn every group of a name but the first into a reference to it."""
    seen: set[str] = set()

    def once(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return match[0]

    return re.sub(r"\(\?P<(\w+)>\\w\+\)", once, pattern)


def say(trial: Trial, harness: str, text: str) -> None:
    """Let the trial answer what the policy said; text without a call ends it."""
    found = CALL.search(text)
    if not found or trial.calls >= MOST_CALLS:
        trial.finished = True
        return
    trial.calls += 1
    given = dict(PARAMETER.findall(found[2]))
    step: Step
    if found[1] == "read" and given.get("path") == trial.task.question.file:
        step = ReadFile(given["path"], 3, trial.task.csv(3), len(trial.task.rows) + 1 - 3)
        trial.commands.append(f"read {given['path']}")
    else:
        step = trial.run(given.get("command", ""))
        trial.commands.append(step.command)
    trial.shown += turn(harness, step)


def simulate(
    model: Any, tokenizer: Any, request: RecordedRequest, role: str, tasks: int, seed: int, temperature: float = 0.8
) -> list[Trial]:
    """Try the policy on new tasks of a role, all at once.

    :return: the finished trials.
    """
    import torch

    torch.manual_seed(seed)
    rng = random.Random(f"simulation {seed}")
    trials = []
    for _ in range(tasks):
        task = draw_task(rng, role)
        trials.append(Trial(task, opening(task.instruction() + "\n", request.system)))
    while running := [trial for trial in trials if not trial.finished]:
        texts = [
            tokenizer.apply_chat_template(
                trial.shown, tools=list(request.tools), tokenize=False, add_generation_prompt=True
            )
            for trial in running
        ]
        batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt", return_token_type_ids=False)
        with torch.inference_mode():
            said = model.generate(
                **batch, max_new_tokens=100, do_sample=True, temperature=temperature, top_k=0, top_p=1.0
            )
        for trial, ids in zip(running, said[:, batch["input_ids"].shape[1] :], strict=True):
            text = tokenizer.decode(ids).split("<|im_end|>")[0].replace("<|endoftext|>", "")
            say(trial, request.harness, text)
    return trials
