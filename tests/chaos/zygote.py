"""The process that makes the others: it imports everything once and forks a role whenever it is told to.

    python -m tests.chaos.zygote MUTANT [room]        (MUTANT is "" for none; `room` if there is to be one)

So a killed process is back in milliseconds, as in a deployment with spare cores (dhsched/local/zygote.py).

What a chaos run changes in the product is changed here, before the product is imported, and nowhere else: short limits
(limits.py), scripts that record themselves (trace.py), one mutant of them (tests/conformance/lua_mutants) or of a
service (hostile_mutants.py), and a wall clock for Workers that the driver can set.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence

from dhsched.local.zygote import serve
from dhsched.ownership import limits
from dhsched.store.steps import scripts
from tests.chaos.hostile_mutants import UNCHECKED
from tests.chaos.limits import CHAOS_LIMITS
from tests.chaos.trace import traced_scripts
from tests.conformance.mutants import LOOK_OFF, MUTANTS

CLOCK = "DHSCHED_CHAOS_CLOCK"
"""A file with the seconds that a Worker's wall clock is off by."""
ROLES = (
    *("uvloop", "dhsched.cli.run", "dhsched.dispatch.app", "dhsched.infer.app", "dhsched.worker.main"),
    "tests.chaos.runtime",
)
"""What the roles need: imported once, before the first fork."""


WITH_ROOM = ("dhsched.room.app", "tests.chaos.picture")


def prepare(mutant: str, *, room: bool = False) -> None:
    """Put the limits and scripts of this run in the place of the product's, then import it."""
    assert "dhsched.store.steps.redis" not in sys.modules, "the product has taken its own scripts and limits already"
    replacements = {}
    if mutant and mutant not in UNCHECKED:
        [wrong] = [each for each in (*MUTANTS, LOOK_OFF) if each.name == mutant]
        replacements = wrong.replacements()
    loaded = traced_scripts(replacements)
    limits.DEFAULT_LIMITS = CHAOS_LIMITS
    scripts.default_scripts = lambda: loaded  # type: ignore[assignment]
    if mutant in UNCHECKED:
        UNCHECKED[mutant].plant()
    for module in (*ROLES, *(WITH_ROOM if room else ())):
        importlib.import_module(module)


def run(arguments: Sequence[str]) -> None:
    """A role, until it ends."""
    if CLOCK in os.environ:
        time.time = off_by(os.environ[CLOCK], time.time)
    sys.argv = ["dhsched", *arguments]
    from dhsched.cli import main

    main()


def off_by(path: str, clock: Callable[[], float]) -> Callable[[], float]:
    """A wall clock that is off by what the file says at the moment."""
    file = os.open(path, os.O_RDONLY)
    return lambda: clock() + float(os.pread(file, 32, 0) or b"0")


if __name__ == "__main__":
    prepare(sys.argv[1], room="room" in sys.argv[2:])
    serve(run)
