"""Staleness and parallelism together (fig:sensitivity): the spread of ours over Strict-Min's, paired by seed.

Strict-Min keeps no delta and all replicas share each snapshot, so neither the number of replicas nor who gets how much
of the traffic changes what it does; it is run once per staleness and seed, and a test holds that to be true.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from dhsched.placement import POLICIES
from dhsched.simulate import simulate
from evaluation.experiment import Experiment, Finding, Part, Row, Size, Tables
from evaluation.files import save
from evaluation.statistics import grouped, mean_and_half, nearest, where
from evaluation.workloads import burst

STALENESS = (1, 10, 100, 300, 1_000, 2_000, 4_000)
REPLICAS = (1, 2, 4, 8, 16, 32)
POLICY_NAMES = ("bottom-tier-paper", "bottom-tier")
TRAFFIC = ("even", "uneven")
UNEVEN_RATIO = 0.5
SEEDS_PER_PART = 10


def weights(traffic: str, replicas: int) -> list[float] | None:
    """Uneven: each replica gets half as much as the one before it, down to a hundredth of the first."""
    return None if traffic == "even" else [max(UNEVEN_RATIO**place, 0.01) for place in range(replicas)]


def run(policy: str, staleness: int, replicas: int, traffic: str, first: int, seeds: int) -> list[Row]:
    rows = []
    for seed in range(first, first + seeds):
        workload = burst(seed, replicas=replicas, replica_weights=weights(traffic, replicas))
        result = simulate(workload, POLICIES[policy], placements_per_snapshot=staleness, seed=seed, fallback=False)
        row: Row = {"policy": policy, "staleness": staleness, "replicas": replicas, "traffic": traffic, "seed": seed}
        rows.append(row | {"spread": result.spread, "failed": result.failed_creates})
    return rows


def parts(size: Size) -> list[Part]:
    seeds = size.seeds(quick=2)
    made: list[Part] = []
    stale = (1, 100, 1_000, 4_000) if size.quick else STALENESS
    counts = (1, 4, 16) if size.quick else REPLICAS

    def add(policy: str, staleness: int, replicas: int, traffic: str) -> None:
        for first in seeds[::SEEDS_PER_PART]:
            arguments: dict[str, Any] = {"policy": policy, "staleness": staleness, "replicas": replicas}
            arguments |= {"traffic": traffic, "first": first, "seeds": min(SEEDS_PER_PART, seeds.stop - first)}
            made.append(Part(f"{policy}_{staleness}_{replicas}_{traffic}_{first}", run, arguments))

    for staleness in stale:
        add("strict-min", staleness, 1, "even")
        for policy in POLICY_NAMES:
            for replicas in counts:
                add(policy, staleness, replicas, "even")
                if replicas > 1 and (size.quick or staleness in (100, 1_000, 4_000)):
                    add(policy, staleness, replicas, "uneven")
    return made


def tables(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    every = [row for made in rows.values() for row in made]
    strict = {(row["staleness"], row["seed"]): row for row in every if row["policy"] == "strict-min"}
    table = []
    groups = grouped(every, "policy", "traffic", "staleness", "replicas")
    for (policy, traffic, staleness, replicas), group in groups.items():
        if policy == "strict-min":
            continue
        # A spread of 0 cannot be a divisor; fresh views reach it. One life is the least that can be seen.
        ratios = [row["spread"] / max(1, strict[staleness, row["seed"]]["spread"]) for row in group]
        ratio, half = mean_and_half(ratios)
        spread, spread_half = mean_and_half([row["spread"] for row in group])
        theirs, _ = mean_and_half([strict[staleness, row["seed"]]["spread"] for row in group])
        row = {"policy": policy, "traffic": traffic, "staleness": staleness, "replicas": replicas, "runs": len(group)}
        row |= {"ratio": round(ratio, 5), "ratio_ci": round(half, 5)}
        row |= {"spread": round(spread, 3), "spread_ci": round(spread_half, 3), "strict_min_spread": round(theirs, 3)}
        table.append(row | {"failed": round(mean_and_half([row["failed"] for row in group])[0], 2)})
    return {"sensitivity": table}


def draw(tables: Tables, folder: Path) -> list[str]:
    names = []
    rows = where(tables["sensitivity"], traffic="even")
    stale = sorted({row["staleness"] for row in rows})
    counts = sorted({row["replicas"] for row in rows})
    figure = plt.figure(figsize=(11, 5))
    for place, policy in enumerate(POLICY_NAMES, start=1):
        grid = _grid(where(rows, policy=policy), stale, counts)
        axis: Any = figure.add_subplot(1, 2, place, projection="3d")
        across, along = np.meshgrid(np.log10(stale), np.log2(counts))
        axis.plot_surface(across, along, grid, cmap="viridis_r", vmin=0, vmax=1.2, alpha=0.9)
        axis.plot_surface(across, along, np.ones_like(grid), color="grey", alpha=0.25)
        # Labels only where there is a free slot for them.
        axis.set_xticks(np.log10(stale), ["" if one in (300, 2_000) else f"{one:,}" for one in stale], rotation=30)
        axis.set_yticks(np.log2(counts), [str(one) for one in counts])
        axis.set(xlabel="placements per snapshot", ylabel="replicas", zlabel="spread / Strict-Min's", title=policy)
        axis.view_init(22, -125)
    names.append(save(figure, folder, "sensitivity"))
    figure, axes = plt.subplots(len(TRAFFIC), 2, figsize=(11, 7.5))
    for line, traffic in enumerate(TRAFFIC):
        for column, policy in enumerate(POLICY_NAMES):
            chosen = where(tables["sensitivity"], traffic=traffic, policy=policy)
            _heat(axes[line][column], chosen, f"{policy}, {traffic} traffic")
    return [*names, save(figure, folder, "sensitivity_heat")]


def _grid(rows: list[Row], stale: list[int], counts: list[int]) -> np.ndarray[Any, Any]:
    found = {(row["replicas"], row["staleness"]): row["ratio"] for row in rows}
    return np.array([[found.get((replicas, one), np.nan) for one in stale] for replicas in counts])


def _heat(axis: Any, rows: list[Row], title: str) -> None:
    stale = sorted({row["staleness"] for row in rows})
    counts = sorted({row["replicas"] for row in rows})
    axis.imshow(_grid(rows, stale, counts), cmap="RdYlGn_r", vmin=0, vmax=2, aspect="auto", origin="lower")
    for row in rows:
        text = f"{row['ratio']:.2f}\n±{row['ratio_ci']:.2f}"
        axis.text(stale.index(row["staleness"]), counts.index(row["replicas"]), text, ha="center", va="center", size=7)
    axis.set_xticks(range(len(stale)), [f"{one:,}" for one in stale])
    axis.set_yticks(range(len(counts)), [str(one) for one in counts])
    axis.grid(visible=False)
    axis.set(xlabel="placements per snapshot", ylabel="replicas", title=title)


def findings(tables: Tables) -> list[Finding]:
    rows = tables["sensitivity"]

    def at(policy: str, traffic: str, staleness: int, replicas: int) -> Row:
        return nearest(where(rows, policy=policy, traffic=traffic, replicas=replicas), "staleness", staleness)

    most = max(row["replicas"] for row in rows)
    found = []
    for policy in POLICY_NAMES:
        stalest = [row for row in where(rows, policy=policy, traffic="even") if row["staleness"] >= 100]
        above = [row for row in stalest if row["ratio"] - row["ratio_ci"] > 1]
        found.append(
            Finding(
                f"`{policy}`: cells at 100 placements or more where ours is above Strict-Min",
                "none, across the tested replica counts",
                f"{len(above)} of {len(stalest)}",
            )
        )
        few, many = at(policy, "even", 1_000, 1), at(policy, "even", 1_000, most)
        found.append(
            Finding(
                f"`{policy}`: ratio at 1,000, 1 and {most} replicas",
                "rises with replicas",
                f"{few['ratio']:.3f} ± {few['ratio_ci']:.3f} and {many['ratio']:.3f} ± {many['ratio_ci']:.3f}",
            )
        )
        uneven, even = at(policy, "uneven", 1_000, most), many
        found.append(
            Finding(
                f"`{policy}`: the same with uneven traffic, {most} replicas",
                "not in the paper",
                f"{uneven['ratio']:.3f} ± {uneven['ratio_ci']:.3f} (even: {even['ratio']:.3f})",
            )
        )
    fresh = at("bottom-tier-paper", "even", 1, most)
    found.append(
        Finding(
            f"fresh views: ratio at 1 placement, {most} replicas",
            "Strict-Min remains competitive",
            f"{fresh['ratio']:.2f} ± {fresh['ratio_ci']:.2f}",
            f"spreads of {fresh['spread']:.1f} and {fresh['strict_min_spread']:.1f} lives: equal in practice.",
        )
    )
    return found


def remarks(_: Tables) -> list[str]:
    return [
        "Uneven traffic: each replica gets half of what the one before it gets, down to a hundredth of the first.",
        "The paper has +1 only; share-weighted deltas are ours.",
    ]


EXPERIMENT = Experiment(
    name="sensitivity",
    title="Staleness and parallelism together",
    paper="fig:sensitivity",
    parts=parts,
    tables=tables,
    draw=draw,
    findings=findings,
    remarks=remarks,
    uses=("placement", "simulate/fleet.py"),
)
