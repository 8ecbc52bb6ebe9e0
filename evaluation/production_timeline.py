"""The replay second by second: how long pushes took, and when a host was killed. A table, and its figure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from dhsched.bench.harness import percentile
from evaluation.experiment import Row
from evaluation.files import save
from evaluation.production_cases import CASES, PAPER_P99_MS

DRAWN = [name for name, case in CASES.items() if case.hosts_lost]
"""The cases in the figure: those with losses."""


def by_second(took: Sequence[tuple[float, float]], killed_at: Sequence[float], began: float) -> list[Row]:
    """One row for each second in which items were pushed. `took` has when each item was pushed and its milliseconds."""
    ms_of, killed = defaultdict[int, list[float]](list), Counter(int(at - began) for at in killed_at)
    for at, ms in took:
        ms_of[int(at - began)].append(ms)
    return [
        {
            "second": second,
            "pushes": len(ms_of[second]),
            "push_p50_ms": round(percentile(ms_of[second], 0.5), 2),
            "push_p99_ms": round(percentile(ms_of[second], 0.99), 2),
            "hosts_killed": killed[second],
        }
        for second in sorted(ms_of)
    ]


def draw_timeline(rows: Sequence[Row], folder: Path) -> str:
    """Draw each case with losses: P50 and P99 of every second, the kills, and the paper's P99 of a day."""
    figure, axes = plt.subplots(len(DRAWN), 1, figsize=(9, 2.4 * len(DRAWN)), squeeze=False)
    for axis, name in zip(axes[:, 0], DRAWN, strict=True):
        some = [row for row in rows if row["case"] == name]
        seconds = [row["second"] for row in some]
        axis.plot(seconds, [row["push_p99_ms"] for row in some], color="#0b6e4f", lw=0.9, label="P99 of a second")
        axis.plot(seconds, [row["push_p50_ms"] for row in some], color="#56b870", lw=0.9, label="P50")
        axis.axhline(PAPER_P99_MS["push"], color="#1f5fa8", ls="--", lw=0.9, label="paper: P99 of a day")
        for row in some:
            if row["hosts_killed"]:
                axis.axvline(row["second"], color="#c0392b", lw=0.7, alpha=0.6)
        case = CASES[name]
        title = f"{case.per_s:,} pushes/s, hosts killed (red): {case.hosts_lost}"
        axis.set(yscale="log", ylabel="PushText (ms)", title=title, xlabel="s")
        axis.legend(fontsize=6, loc="upper right")
    return save(figure, folder, "production_timeline")
