"""Scripts with one check taken out or turned round each: what our scenarios are worth is how many of them they catch.

They are written in lua_mutants/*.txt like changes to a file:

    == place                                  the Lua file, without its ending
    no-source-epoch-guard: recover_stale      the mutant, and the scenario that must catch it (tests/scenarios/*.txt,
    - if r.epoch ~= expected then             or short_scenarios.py)
    + if false then

The old text must be in the file exactly once, so a script that changes under a mutant fails its test instead of leaving
the mutant without effect. Indentation does not count.

Not every condition can have one: some are there twice over, on purpose (the epoch and the slot in `pull`), and some
only meet what another setting left behind (a live swept under a shorter ended_ttl_ms). `agent-restarts-departed` is no
script's: the specification has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dhsched.store.keys import NEVER
from dhsched.store.steps.scripts import sources

FOLDER = Path(__file__).parent / "lua_mutants"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong script. `by` is the scenario that catches it."""

    name: str
    file: str
    by: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    def replacements(self) -> dict[str, str]:
        """The mutated file, for `scripts.load`."""
        text = sources()[self.file]
        pattern = r"\s*\n\s*".join(map(re.escape, self.old))
        found = len(re.findall(pattern, text))
        if found != 1:
            raise AssertionError(
                f"mutant {self.name}: {self.file}.lua has {self.old} {found} times; bring it up to date"
            )
        return {self.file: re.sub(pattern, lambda _: "\n".join(self.new), text)}


def read(text: str) -> list[Mutant]:
    """The mutants in one file."""
    found: list[Mutant] = []
    for section in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        file, *blocks = re.split(r"\n\n+", section.strip())
        for block in blocks:
            title, *changes = block.splitlines()
            name, by = title.split(": ")
            old = tuple(line[2:] for line in changes if line.startswith("- "))
            new = tuple(line[2:] for line in changes if line.startswith("+ "))
            if not old or len(old) + len(new) != len(changes):
                raise ValueError(f"mutant {name}: lines must start with `- ` or `+ `, and some with `- `")
            found.append(Mutant(name, file, by, old, new))
    return found


MUTANTS = [mutant for path in sorted(FOLDER.glob("*.txt")) for mutant in read(path.read_text())]

LOOK_OFF = Mutant(
    name="look-off",
    file="lib/base",
    by="tests/integration/test_slot_migration.py",
    old=(f"call('EXISTS', prefix .. '{NEVER}')",),
    new=(),
)
"""Scripts that also run on a slot that is being moved. No scenario catches it: there the slot never moves."""
