"""Corrects the outcomes that scenarios expect: what the model answers replaces what stands after `=>`.

    pytest tests/conformance/test_scenarios.py --rewrite

The option is in conftest.py. The files are corrected before the tests run, so the tests then hold every subject to the
corrected scenarios. Read the difference before you commit it: the model is as likely to be wrong as the scenario.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from dhsched.ownership.state import State
from tests.conformance.scenario import DETAIL, Runner
from tests.conformance.shown import Said
from tests.conformance.subjects import ModelSubject
from tests.scenarios.language import TOKEN, Line, ScenarioError, read


def rewrite_all(folder: Path) -> list[Path]:
    """Correct every scenario in `folder` and return the files that changed.

    A scenario that cannot be read, or that breaks an invariant, stays as it is: its test says what is wrong.
    """
    changed = []
    for path in sorted(folder.glob("*.txt")):
        before = path.read_bytes()
        try:
            after = asyncio.run(corrected(before.decode(), path.name)).encode()
        except ScenarioError:
            continue
        if after != before:
            path.write_bytes(after)
            changed.append(path)
    return changed


async def corrected(text: str, name: str) -> str:
    """The scenario with the outcomes that the model gives. All but a wrong outcome stays as it was."""
    scenario = read(text, name)
    rewriter = Rewriter(ModelSubject(scenario.limits))
    for line in scenario.lines:
        await rewriter.take(line)
    lines = text.splitlines(keepends=True)
    for number, outcome in rewriter.outcomes.items():
        lines[number - 1] = with_outcome(lines[number - 1], outcome)
    return "".join(lines)


def with_outcome(raw: str, outcome: str) -> str:
    """One line with another outcome; a comment behind the outcome, and the space before it, stay."""
    tokens = [match for match in TOKEN.finditer(raw) if match["token"]]
    arrow = next(number for number, match in enumerate(tokens) if match["token"] == "=>")
    return raw[: tokens[arrow + 1].start()] + outcome + raw[tokens[-1].end() :]


class Rewriter(Runner):
    """Notes the outcomes that differ, by line number, where a Runner fails. Checks are left to the tests."""

    def __init__(self, subject: ModelSubject) -> None:
        super().__init__(subject)
        self.outcomes: dict[int, str] = {}

    def compare(self, line: Line, said: Said, state: State) -> None:
        if not self.as_expected(line, said):
            self.outcomes[int(line.where.rpartition(":")[2])] = self.outcome(line, said)

    def check(self, line: Line, state: State) -> None:
        pass

    def outcome(self, line: Line, said: Said) -> str:
        """What the line would have to expect, in as much detail as it asked for; a right word keeps its spelling."""
        asked = [token.partition("=")[0] for token in line.expected if DETAIL.match(token)]
        details = {name: said.details[name] for name in asked if name in said.details}
        payload = said.payload if said.word != line.expected[0] or any('"' in each for each in line.expected) else ()
        printed = TOKEN.finditer(str(replace(said, payload=payload, details=details)))
        spelling = {self.canonical(token): token for token in line.expected}
        return " ".join(spelling.get(match["token"]) or self.spell(match["token"], said) for match in printed)

    def spell(self, token: str, said: Said) -> str:
        """A Worker by its short name, but not in a payload, nor where its WorkerID is the news."""
        return token if '"' in token or said.word == "REGISTERED" else self.shorten(token)
