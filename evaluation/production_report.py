"""What the production replay says beside the paper: its figure, and its part of the report (production.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt

from evaluation.experiment import Finding, Row, Tables
from evaluation.files import save
from evaluation.production_cases import (
    BIG_HOSTS,
    DAY,
    LOSS_S,
    PAPER_P99_MS,
    PEAK,
    PUSHES,
    ROLES,
    SMALL_HOST_WORKERS,
    SMALL_HOSTS,
)
from evaluation.production_timeline import draw_timeline


def draw(tables: Tables, folder: Path) -> list[str]:
    rows = tables["production"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    names, width = list(PAPER_P99_MS), 0.8 / (len(rows) + 1)
    paper = list(PAPER_P99_MS.values())
    axes[0].bar([n - 0.4 + width / 2 for n in range(3)], paper, width, color="#1f5fa8", label="paper, production")
    for place, row in enumerate(rows, start=1):
        at = [n - 0.4 + width / 2 + place * width for n in range(3)]
        colour = plt.get_cmap("Greens")(0.35 + 0.6 * place / len(rows))
        label = f"ours, {row['rate']:.0f}/s, {row['losses']:.0f} losses"
        axes[0].bar(at, [row[f"{name}_p99_ms"] for name in names], width, color=colour, label=label)
    axes[0].set_xticks(range(3), names)
    axes[0].set(yscale="log", ylabel="P99 (ms)")
    axes[0].legend(fontsize=6)
    first = rows[0]
    roles = ("store", "dispatch", "infer", "workers")
    axes[1].bar(roles, [first[f"memory_{role}_mb"] for role in roles], color="#56b870")
    axes[1].set(ylabel="resident memory (MiB)", title=f"{first['lives']:,.0f} lives")
    drawn = [save(figure, folder, "production")]
    if timeline := tables.get("production_timeline"):
        drawn.append(draw_timeline(timeline, folder))
    return drawn


def findings(tables: Tables) -> list[Finding]:
    found = [Finding("lives at once", f"{PEAK:,}", _all(tables, lambda row: f"{row['lives']:,.0f}"))]
    for row in tables["production"]:
        found += _of_case(row)
    found += [
        Finding(
            "WorkerSelect P99", f"{PAPER_P99_MS['select']} ms", _all(tables, lambda row: f"{row['select_p99_ms']} ms")
        ),
        Finding(
            "dual owners, overshoots",
            "0, 0",
            _all(tables, lambda row: f"{row['dual_owners']:.0f}, {row['overshoots']:.0f}"),
        ),
        Finding(
            f"memory in MiB: {', '.join(ROLES[:-1])}",
            "not given",
            _all(tables, lambda row: ", ".join(f"{row[f'memory_{role}_mb']:.0f}" for role in ROLES[:-1])),
        ),
        Finding(
            f"CPU in cores: {', '.join(ROLES)}",
            "not given",
            _all(tables, lambda row: ", ".join(_cores(row, role) for role in ROLES)),
        ),
    ]
    return found


def _of_case(row: Row) -> list[Finding]:
    at = f"{row['rate']:,.0f} pushes/s, {row['losses']:.0f} Workers lost"
    found = [
        Finding(
            f"{at}: pushes, creates, migrations",
            f"{DAY['pushes']:,}, {DAY['creates']:,}, {DAY['migrations']:,} a day",
            f"{row['pushes']:,.0f} ({row['pushes_refused']:.0f} refused), {row['creates']:,.0f}, "
            f"{row['migrations']:,.0f}",
        ),
        Finding(f"{at}: CreateLive P99", f"{PAPER_P99_MS['create']} ms", f"{row['create_p99_ms']:.1f} ms"),
        Finding(
            f"{at}: PushText P50, P99, P99.9 at the client",
            f"P99 {PAPER_P99_MS['push']} ms",
            f"{_ms(row['push_p50_ms'])}, {_ms(row['push_p99_ms'])}, {_ms(row['push_p999_ms'])}",
        ),
    ]
    if row["losses"] and row["push_other_p99_ms"] != "":
        found.append(
            Finding(
                f"{at}: PushText P99 in seconds without a loss",
                f"{PAPER_P99_MS['push']} ms",
                f"{_ms(row['push_other_p99_ms'])}, {row['push_other_percent']:.0f} % of the pushes",
                f"a second is with a loss until {LOSS_S:g} s after a host was killed.",
            )
        )
    if row["push_us"] != "":
        net = f"; {row['push_net_us']:.0f} without upkeep" if row["push_net_us"] != "" else ""
        found.append(
            Finding(f"{at}: CPU of controllers and store", "not given", f"{row['push_us']:.0f} us a push{net}")
        )
    return found


def _ms(value: float | str) -> str:
    return f"{value:.1f} ms" if isinstance(value, int | float) else "not measured"


def _cores(row: Row, role: str) -> str:
    value = row[f"cpu_{role}_s"]
    return f"{value / row['played_s']:.2f}" if isinstance(value, int | float) else "not measured"


def _all(tables: Tables, figure: Callable[[Row], str]) -> str:
    """One figure of every case; said once where all have the same."""
    said = {f"{row['rate']:,.0f}/s, {row['losses']:.0f} lost": figure(row) for row in tables["production"]}
    first, *others = said.values()
    return first if all(other == first for other in others) else "; ".join(f"{at}: {one}" for at, one in said.items())


def remarks(tables: Tables) -> list[str]:
    rows = tables["production"]
    hosts = BIG_HOSTS + SMALL_HOSTS
    said = [
        f"Each figure is the median of {min(row['runs'] for row in rows)} run(s). Not scaled: lives at once. Creates "
        f"and planned moves are in the day's proportion to pushes. {rows[0]['workers']:.0f} Workers in {hosts} "
        "processes, no GPU, no media; store, services, Workers and clients share one machine of two cores.",
        f"Of {DAY['losses']} losses in {DAY['pushes']:,} pushes, {DAY['losses'] * PUSHES / DAY['pushes']:.2f} fall on "
        f"{PUSHES:,}: one host of {SMALL_HOST_WORKERS} Workers is lost. With all {DAY['losses']}, they come much "
        "closer together than in a day: each host puts some 600 lives on other Workers.",
    ]
    for row in rows:
        if row["unclaimed_at_end"]:
            said.append(
                f"At {row['rate']}/s with {row['losses']:.0f} losses, {row['unclaimed_at_end']:.0f} lives were without "
                f"a claimed owner {row['settled_s']:.0f} s after the replay."
            )
        if row["gave_out"]:
            said.append(f"What gave out first at {row['rate']}/s: {row['gave_out']}")
    return said
