"""What a run found, and what its processes logged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

MEANT = "was given"  # What a runtime dies of on purpose (runtime.py).


@dataclass
class Report:
    """What a run found. No violation is the good answer."""

    seed: int
    mutant: str = ""
    violations: list[str] = field(default_factory=list)
    red_after_s: float | None = None
    faults: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    resharded: Counter[str] = field(default_factory=Counter)
    keys_moved: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    lives: int = 0
    accepted: int = 0
    lost: int = 0
    consumed: int = 0
    consumed_twice: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    logged: list[str] = field(default_factory=list)
    calm_s: float = 0.0
    judged_s: float = 0.0
    hostile_steps: int = 0
    frames: int = 0
    """Frames that the honest viewer saw; of `pictures` generations."""
    pictures: int = 0
    coverage: list[str] = field(default_factory=list)
    """The table of what the hostile side sent."""


def complaints(log: Path) -> list[str]:
    """Errors that nobody expected: tracebacks other than of runtimes that were meant to die, and rounds that failed."""
    if not log.exists():
        return []
    found, inside = [], False
    for line in log.read_text(errors="replace").splitlines():
        if "a round failed" in line:
            found.append(f"{log.stem}: {line}")
        if line.startswith("Traceback"):
            inside = True
        elif inside and line[:1].isalpha():
            # The first line that is not indented names the exception.
            inside = False
            if MEANT not in line:
                found.append(f"{log.stem}: {line}")
    return found
