"""Means with 95 % intervals, and shares with theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

from evaluation.experiment import Row

Z_95 = 1.959963984540054


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval by Student's t."""
    if len(values) < 2:
        return fmean(values), 0.0
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return fmean(values), half


def share_interval(hits: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; it is right at 0 and at 1 too."""
    if of == 0:
        return 0.0, 1.0
    share, z2 = hits / of, Z_95**2
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = Z_95 * sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def grouped(rows: Iterable[Row], *by: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    return groups


def means(rows: Iterable[Row], by: Sequence[str], of: Sequence[str]) -> list[Row]:
    """One row for each group: `<field>` is the mean and `<field>_ci` half its interval."""
    made = []
    for key, group in grouped(rows, *by).items():
        row: Row = dict(zip(by, key, strict=True))
        row["runs"] = len(group)
        for field in of:
            middle, half = mean_and_half([one[field] for one in group])
            row[field], row[f"{field}_ci"] = round(middle, 5), round(half, 5)
        made.append(row)
    return made


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def the(rows: Iterable[Row], **wanted: Any) -> Row:
    """The one row with these values."""
    found = where(rows, **wanted)
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows have {wanted}; one was expected")
    return found[0]


def nearest(rows: Sequence[Row], field: str, value: float) -> Row:
    """The row whose field is nearest: quick runs have fewer points than full ones."""
    return min(rows, key=lambda row: abs(row[field] - value))
