"""The hours that virtual runs have had, over all runs: a row per batch of seeds in hours.csv, and their sum in
README.md. docs/internals/virtual-runs.md has the sum of the rows without a violation."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tests.virtual.apart import Found

HOURS_CSV = Path(__file__).parent / "hours.csv"
README = Path(__file__).parents[2] / "README.md"
PAGE = Path(__file__).parents[2] / "docs/internals/virtual-runs.md"
COLUMNS = ("seed", "seeds", "hours", "faults", "pushes", "violations", "cpu_s", "commit", "trace_sha256")
BATCH_SEEDS = 100  # A batch that has this many seeds is written; the next seed begins another one.
SUM = re.compile(r"Virtual runs so far: .*")
CLEAN = re.compile(r"Rows without a violation, .*")
FAULTS_LEAST, PUSHES_LEAST = 60, 1_000  # Of an hour that counts in the page.


def add(batch: Sequence[Found], commit: str) -> None:
    """Write the row of a batch of consecutive seeds, instead of an earlier one of the same first seed and length of a
    run, and the new sum."""
    row = row_of(batch, commit)
    rows = [each for each in read_rows() if kind_of(each) != kind_of(row)] + [row]
    with HOURS_CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    README.write_text(SUM.sub(summed(rows), README.read_text()))
    PAGE.write_text(CLEAN.sub(clean(rows), PAGE.read_text()))


def row_of(batch: Sequence[Found], commit: str) -> dict[str, str]:
    """Return the row of a batch. `hours` are those of all its seeds; the hash of several traces is that of their
    hashes."""
    lines = [found.line for found in batch]
    hashes = [line["trace_sha256"] for line in lines]
    row = {
        "seed": lines[0]["seed"],
        "seeds": len(lines),
        "hours": f"{sum(line['hours'] for line in lines):g}",
        **{name: sum(line[name] for line in lines) for name in ("faults", "pushes", "violations")},
        "cpu_s": round(sum(found.cpu_s for found in batch), 1),
        "commit": commit,
        "trace_sha256": hashes[0] if len(lines) == 1 else sha256("".join(hashes).encode()).hexdigest(),
    }
    return {name: str(value) for name, value in row.items()}


def kind_of(row: dict[str, str]) -> tuple[str, float]:
    """The first seed of a row, and how long each run was."""
    return row["seed"], round(float(row["hours"]) / int(row["seeds"]), 6)


def current_commit() -> str:
    """Return the commit of the tree; with a plus sign if its files are changed since."""
    changed = ["git", "diff", "--quiet", "HEAD", "--", "src", "tests", f":!{HOURS_CSV.relative_to(README.parent)}"]
    name = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=README.parent, text=True).strip()
    return name + "+" * subprocess.run(changed, cwd=README.parent, check=False).returncode


def read_rows() -> list[dict[str, str]]:
    with HOURS_CSV.open(newline="") as file:
        return list(csv.DictReader(file))


def summed(rows: list[dict[str, str]]) -> str:
    """Return the sentence of README.md."""
    violations, cpu_s = sum(int(row["violations"]) for row in rows), sum(float(row["cpu_s"]) for row in rows)
    return f"Virtual runs so far: {numbers_of(rows)}, {violations} violations, {cpu_s / 3600:.1f} hours of CPU."


def clean(rows: list[dict[str, str]]) -> str:
    """Return the sentence of the page: what the rows without a violation sum up to, of those with enough faults and
    pushes in an hour."""
    found = [row for row in rows if row["violations"] == "0" and is_full(row)]
    return (
        f"Rows without a violation, at {FAULTS_LEAST} faults and {PUSHES_LEAST:,} pushes an hour: {numbers_of(found)}."
    )


def is_full(row: dict[str, str]) -> bool:
    hours = float(row["hours"])
    return int(row["faults"]) >= FAULTS_LEAST * hours and int(row["pushes"]) >= PUSHES_LEAST * hours


def numbers_of(rows: list[dict[str, str]]) -> str:
    hours = sum(float(row["hours"]) for row in rows)
    seeds, faults, pushes = (sum(int(row[name]) for row in rows) for name in ("seeds", "faults", "pushes"))
    return f"{round(hours, 2):g} hours, {seeds:,} seeds, {faults:,} faults, {pushes:,} pushes"
