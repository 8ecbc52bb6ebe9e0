"""Mechanical mutants of the Lua steps, and what notices them: the scenarios, then random walks.

A mutant is noticed when a scripted answer or the state differs from the model's, or when the script fails. What only a
cluster, a failover or several processes show is not noticed here; `survivors.txt` says so of those mutants.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dhsched.errors import DhschedError
from dhsched.store.keys import Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.steps.scripts import load, sources
from tests.conformance.lockstep import Mismatch
from tests.conformance.real import Greeted, recorded
from tests.conformance.short_scenarios import SHORT_SCENARIOS
from tests.conformance.tape import Tape, play, scenario_tape, walk_tape
from tests.harness.servers import running_server
from tests.mutation.results import Results, Row, digest_of
from tests.scenarios.language import SCENARIOS

SWAPS = (
    (" >= ", " > "),
    (" > ", " >= "),
    (" <= ", " < "),
    (" < ", " <= "),
    (" == ", " ~= "),
    (" ~= ", " == "),
    (" and ", " or "),
    (" or ", " and "),
    (" + 1", ""),
    (" - 1", ""),
    ("math.max", "math.min"),
    ("math.min", "math.max"),
    ("not ", ""),
)
"""A text and what stands in its place."""
DROPPED = re.compile(r"[a-z_]+\(.*\)$")
"""A line that is one call, whose answer nobody uses: it can be left out."""
HELD_BY_TESTS = {"lib/clock", "lib/server", "lib/base", "lib/now"}
"""Files without mutants: the tests replace them, or nothing runs without them."""
WALKS, WALK_STEPS = 8, 200
ENDS_S = 300.0  # For all tapes of one mutant. A mutant that takes longer does not end, and its server is given up.


@dataclass(frozen=True, slots=True)
class LuaMutant:
    """One Lua file with one change."""

    name: str  # The file, the line's text, the rule; without the line's number, which other changes move.
    file: str
    line: int
    rule: str
    text: str


def mutants(texts: Mapping[str, str]) -> Iterator[LuaMutant]:
    """Return every mutant of every file, in their order."""
    for file, text in texts.items():
        if file in HELD_BY_TESTS:
            continue
        lines, seen = text.split("\n"), Counter[str]()
        for at, line in enumerate(lines):
            seen[line.strip()] += 1
            again = f" ({seen[line.strip()]})" if seen[line.strip()] > 1 else ""
            for rule, new in changes(line):
                changed = "\n".join([*lines[:at], new, *lines[at + 1 :]])
                yield LuaMutant(f"{file}: {line.strip()}{again} [{rule}]", file, at + 1, rule, changed)


def changes(line: str) -> Iterator[tuple[str, str]]:
    """Return what can be changed in a line: the rule, with its place where there are several, and the new line."""
    code = line.split(" -- ")[0]
    if not code.strip() or code.lstrip().startswith("--"):
        return
    for old, new in SWAPS:
        for place, found in enumerate(re.finditer(re.escape(old), code), start=1):
            suffix = f" #{place}" if place > 1 else ""
            yield f"{old.strip()} => {new.strip()}".rstrip() + suffix, code[: found.start()] + new + code[found.end() :]
    if DROPPED.fullmatch(code.strip()):
        yield "dropped", ""


def tapes() -> list[Tape]:
    """Return everything that is played, in the order in which it is tried."""
    names = [*SHORT_SCENARIOS, *(path.stem for path in sorted(SCENARIOS.glob("*.txt")))]
    return [*map(scenario_tape, names), *(walk_tape(seed, WALK_STEPS) for seed in range(WALKS))]


class LuaRun:
    """One server on which mutants are played."""

    def __init__(self, played: list[Tape]) -> None:
        self._played = played
        self._killers: dict[str, list[str]] = {}

    async def killer(self, mutant: LuaMutant, address: Address) -> str:
        """Return what notices the mutant; empty if nothing does. Raise TimeoutError if a script does not end."""
        try:
            scripts = load({**recorded(), mutant.file: mutant.text})
            loaded = {name: script.source for name, script in scripts.items()}
            link = await Link.open(address, loaded, slot_key=Keys("main").cell, entry=Greeted())
        except (DhschedError, ValueError):
            return "does not load"
        async with link:
            for tape in self._likely_first(mutant.file):
                try:
                    await play(tape, link, scripts)
                except (Mismatch, DhschedError, ArithmeticError, LookupError, TypeError, ValueError):
                    self._remember(mutant.file, tape.name)
                    return tape.name
        return ""

    def _likely_first(self, file: str) -> list[Tape]:
        """Return all tapes; those that noticed mutants of this file stand first, the latest at the front."""
        order = {name: place for place, name in enumerate(self._killers.get(file, ()))}
        return sorted(self._played, key=lambda tape: order.get(tape.name, len(order)))

    def _remember(self, file: str, tape: str) -> None:
        killers = self._killers.setdefault(file, [])
        if tape in killers:
            killers.remove(tape)
        killers.insert(0, tape)


def try_all(results: Results, say: Callable[[str], object], only: str = "") -> None:
    """Try each mutant that was not noticed before and whose file has `only` in its name; write its row."""
    logging.disable()  # Broken scripts lose connections all the time.
    made = list(mutants(sources()))
    played = tapes()
    waiting = [each for each in made if only in each.file and not results.noticed(each.name, digest_of(each.text))]
    run = LuaRun(played)
    try:
        while waiting:
            asyncio.run(_until_stuck(run, waiting, results, say))
    finally:
        logging.disable(logging.NOTSET)
        results.tidy(each.name for each in made)


async def _until_stuck(run: LuaRun, waiting: list[LuaMutant], results: Results, say: Callable[[str], object]) -> None:
    """Try one mutant after the other on one server. A script that does not end needs another server."""
    async with running_server("valkey") as server:
        as_it_is = await run.killer(LuaMutant("", "place", 0, "", sources()["place"]), server.address)
        assert not as_it_is, f"the scripts as they are fail {as_it_is}"
        while waiting:
            mutant = waiting.pop(0)
            stuck = False
            try:
                async with asyncio.timeout(ENDS_S):
                    killer = await run.killer(mutant, server.address)
            except TimeoutError:
                killer, stuck = "does not end", True
            results.write(Row(mutant.name, mutant.file, mutant.line, mutant.rule, killer, digest_of(mutant.text)))
            if not killer:
                say(f"survives: {mutant.name}")
            if stuck:
                return
