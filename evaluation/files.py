"""Tables as CSV files, figures as PNG files: the same bytes from the same numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from evaluation.experiment import Row

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
)
POLICY_COLOURS = {
    "emptiest": "#d4a017",
    "bottom-tier": "#0b6e4f",
    "bottom-tier-paper": "#56b870",
    "bottom-tier-replicas": "#a7d7a9",
    "exact": "#222222",
    "strict-min": "#c0392b",
    "least-load": "#e67e22",
    "power-of-two": "#8e6bbf",
    "orleans-ac": "#1f5fa8",
    "orleans-ac-priority": "#5fa2dd",
    "orleans-ac-code": "#17a2a2",
}


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def save(figure: Figure, folder: Path, name: str) -> str:
    figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    return name
