"""What a mutant of the specification is: the lists of them are in mutants.py, time_mutants.py and cell_mutants.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule. `tlc` and `explorer` are a configuration and the invariant that it violates there."""

    name: str
    breaks: str
    tlc: tuple[str, str] | None = None
    explorer: tuple[str, str] | None = None
    patch: Patch | None = None
