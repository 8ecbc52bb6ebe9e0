"""REPORT.md, made from the CSV files alone: no number of ours is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluation.experiment import Experiment, Row
from evaluation.files import read_csv

HEAD = """# The paper's evaluation, run on this code

Made by `python -m evaluation report` from the CSV files beside it; do not edit. "Paper" is what the paper reports of
its own system, workloads and machines (section 8); "ours" is what this code did here. Figures marked *quoted* were
measured by the paper's authors on other software and are not rerun. Intervals are 95 %: Student's t over common seeds
for means, Wilson's for shares. A setting that the paper leaves open is named under "Choices", with how the outcome
moves. The paper's table of published systems (tab:published) is context; it is cited there and not rerun.
"""


def write_report(experiments: Sequence[Experiment], folder: Path) -> Path:
    """Whatever has its tables is in; what has not been run is said to be missing."""
    text = [HEAD]
    for number, experiment in enumerate(experiments, start=1):
        text += [f"\n## {number}. {experiment.title} ({experiment.paper})\n", *_section(experiment, folder)]
    path = folder / "REPORT.md"
    path.write_text("\n".join(text).rstrip() + "\n")
    return path


def _section(experiment: Experiment, folder: Path) -> list[str]:
    tables = read_tables(experiment, folder)
    if not tables:
        return [f"Not run here yet: `python -m evaluation {experiment.name}`.\n"]
    lines = [f"![{experiment.title}]({path.name})\n" for path in sorted(folder.glob(f"{experiment.name}*.png"))]
    lines += ["| what | paper | ours |", "|---|---|---|"]
    findings = experiment.findings(tables)
    lines += [f"| {one.what} | {one.paper} | {one.ours} |" for one in findings]
    lines += ["", *(f"- {one.what}: {one.note}" for one in findings if one.note)]
    remarks = experiment.remarks(tables)
    if remarks:
        lines += ["", "Choices, and what follows from them:", "", *(f"- {remark}" for remark in remarks)]
    names = ", ".join(f"[{name}.csv]({name}.csv)" for name in tables)
    return [*lines, "", f"Data: {names}.", ""]


def read_tables(experiment: Experiment, folder: Path) -> dict[str, list[Row]]:
    """An experiment's tables as they are on disk; empty where it was not run."""
    return {path.stem: read_csv(path) for path in sorted(folder.glob(f"{experiment.name}*.csv"))}
