"""What noticed each mutant, as a CSV file that a later run goes on with; and why survivors may live."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
REASONS = FOLDER / "survivors.txt"
FIELDS = ("name", "file", "line", "rule", "killer", "digest")


class Row(NamedTuple):
    """One mutant that was tried. `killer` is what noticed it, and empty for a survivor."""

    name: str
    file: str
    line: int
    rule: str
    killer: str
    digest: str


def digest_of(text: str) -> str:
    """Return what tells one text of a mutant from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Results:
    """The rows of one kind of mutants. Each row is in the file as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, Row] = {}
        if path.exists():
            with path.open(newline="") as file:
                for name, its_file, line, rule, killer, digest in list(csv.reader(file))[1:]:
                    self._rows[name] = Row(name, its_file, int(line), rule, killer, digest)

    @property
    def rows(self) -> list[Row]:
        return [*self._rows.values()]

    def noticed(self, name: str, digest: str) -> bool:
        """Whether this very mutant was noticed before. A survivor is tried in every run: tests may have come."""
        row = self._rows.get(name)
        return row is not None and row.digest == digest and bool(row.killer)

    def tried(self, name: str) -> bool:
        return name in self._rows

    def write(self, row: Row) -> None:
        self._rows[row.name] = row
        new = not self._path.exists()
        with self._path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(FIELDS)
            writer.writerow(row)

    def tidy(self, order: Iterable[str]) -> None:
        """Write the file anew: the mutants that there are, in their order, one row each."""
        self._rows = {name: self._rows[name] for name in order if name in self._rows}
        with self._path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([FIELDS, *self._rows.values()])


def reasons() -> dict[str, str]:
    """Return why each survivor may live, by the mutant's name. A reason stands below the names that it is for."""
    found: dict[str, str] = {}
    for block in REASONS.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        names = [line.strip() for line in lines if line.startswith("  ")]
        reason = " ".join(line.strip() for line in lines if not line.startswith("  "))
        found.update(dict.fromkeys(names, reason))
    return found
