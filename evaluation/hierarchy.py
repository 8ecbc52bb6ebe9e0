"""Placement over Pools (fig:placement b-c): eight unequal Pools, twelve DigitalIDs eligible for two to eight of them.

How many creates fail, how many lives end outside their preferred tier, and what an all-knowing planner would reach:
the minimum-cost flow from DigitalIDs to Pools, which first places as many as possible and then as few off-tier as
possible. Slots of one Pool are alike to it, and no live moves, so it is a limit for every policy here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linprog

from dhsched.placement import POLICIES
from dhsched.simulate import Workload, simulate
from evaluation.experiment import Experiment, Finding, Part, Row, Size, Tables
from evaluation.files import POLICY_COLOURS, save
from evaluation.statistics import means, the, where
from evaluation.workloads import hierarchy

STALENESS = 1_000
FILL = 0.9
FILLS = (0.6, 0.7, 0.8, 0.85, 0.95)
SWEPT = ("orleans-ac", "orleans-ac-priority", "least-load", "bottom-tier-paper", "bottom-tier")
STALE = (100, 4_000)
MEASURED = ("off_tier", "failed", "rejected", "utilisation_spread", "optimum_off_tier", "optimum_failed")
PAPER = {
    "orleans-ac": "45.4 % / 609.9",
    "orleans-ac-priority": "14.1 % / 365.3",
    "least-load": "84.0 % / close to none",
    "bottom-tier-paper": "12.3 % / 0",
}
SEEDS_PER_PART = 10
OFF_TIER_COST, FAILED_COST = 1.0, 1_000.0


def optimum(workload: Workload) -> tuple[float, int]:
    """The least share off-tier, and the failed creates, with everything known beforehand."""
    asked = Counter(digital_id for _, digital_id in workload.arrivals)
    free = Counter({pool.name: 0 for pool in workload.pools})
    for worker in workload.workers:
        free[worker.pool] += worker.capacity - worker.load
    ways = [
        (index, entry.pool, 0.0 if entry.tier == min(one.tier for one in each.pools) else OFF_TIER_COST)
        for index, each in enumerate(workload.digital_ids)
        for entry in each.pools
    ]
    failing = range(len(workload.digital_ids))
    costs = np.array([cost for _, _, cost in ways] + [FAILED_COST for _ in failing])
    demands = np.zeros((len(failing), len(costs)))
    limits = np.zeros((len(free), len(costs)))
    row_of = {pool: row for row, pool in enumerate(sorted(free))}
    for column, (index, pool, _) in enumerate(ways):
        demands[index, column] = 1
        limits[row_of[pool], column] = 1
    for index in failing:
        demands[index, len(ways) + index] = 1
    found = linprog(
        costs, A_ub=limits, b_ub=[free[pool] for pool in sorted(free)], A_eq=demands, b_eq=[asked[i] for i in failing]
    )
    assert found.status == 0 and found.x is not None, found.message
    failed = round(float(found.x[len(ways) :].sum()))
    off_tier = float(found.x[: len(ways)] @ costs[: len(ways)])
    return off_tier / max(1, len(workload.arrivals) - failed), failed


def run(policy: str, staleness: int, fill: float, fallback: bool, first: int, seeds: int) -> list[Row]:
    rows = []
    for seed in range(first, first + seeds):
        workload = hierarchy(seed, fill=fill)
        result = simulate(workload, POLICIES[policy], placements_per_snapshot=staleness, seed=seed, fallback=fallback)
        best, unavoidable = optimum(workload)
        row: Row = {"policy": policy, "staleness": staleness, "fill": fill, "fallback": int(fallback), "seed": seed}
        row |= {"off_tier": round(result.off_tier_share, 6), "failed": result.failed_creates}
        row |= {"rejected": result.rejected_candidates, "utilisation_spread": round(result.utilisation_spread, 6)}
        rows.append(row | {"optimum_off_tier": round(best, 6), "optimum_failed": unavoidable})
    return rows


def parts(size: Size) -> list[Part]:
    seeds = size.seeds(quick=2)
    made: list[Part] = []

    def add(policy: str, *, staleness: int = STALENESS, fill: float = FILL, fallback: bool = False) -> None:
        for first in seeds[::SEEDS_PER_PART]:
            arguments = {"policy": policy, "staleness": staleness, "fill": fill, "fallback": fallback, "first": first}
            arguments["seeds"] = min(SEEDS_PER_PART, seeds.stop - first)
            made.append(Part(f"{policy}_{staleness}_{fill}_{int(fallback)}_{first}", run, arguments))

    for policy in POLICIES:
        add(policy)
        add(policy, fallback=True)
    for policy in SWEPT:
        for fill in FILLS[2::2] if size.quick else FILLS:
            add(policy, fill=fill)
        for staleness in STALE:
            add(policy, staleness=staleness)
    return made


def tables(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    every = [row for made in rows.values() for row in made]
    table = means(every, ("policy", "staleness", "fill", "fallback"), MEASURED)
    for row in table:
        row["off_tier_above_optimum"] = round(row["off_tier"] - row["optimum_off_tier"], 5)
    return {"hierarchy": table}


def draw(tables: Tables, folder: Path) -> list[str]:
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2))
    base = where(tables["hierarchy"], staleness=STALENESS, fill=FILL)
    panels = (("off_tier", 100.0, "off-tier placement (%)"), ("failed", 1.0, "failed creates of 16,000"))
    for axis, (field, scale, label) in zip(axes, panels, strict=False):
        for offset, fallback in ((-0.2, 0), (0.2, 1)):
            bars = [the(base, policy=policy, fallback=fallback) for policy in POLICIES]
            axis.barh(
                [place + offset for place in range(len(bars))],
                [row[field] * scale for row in bars],
                xerr=[row[f"{field}_ci"] * scale for row in bars],
                height=0.38,
                color=[POLICY_COLOURS[row["policy"]] for row in bars],
                alpha=0.45 if fallback else 1.0,
            )
        axis.set_yticks(range(len(POLICIES)), list(POLICIES))
        axis.invert_yaxis()
        axis.set_xlabel(label)
    limit = base[0]["optimum_off_tier"] * 100
    axes[0].axvline(limit, color="black", linestyle="--", linewidth=1)
    axes[0].set_title(f"dashed: offline optimum {limit:.1f} %\nsolid: 3 attempts; pale: and the store's fallback")
    for policy in SWEPT:
        line = where(tables["hierarchy"], staleness=STALENESS, fallback=0, policy=policy)
        line = sorted(line, key=lambda row: float(row["fill"]))
        axes[2].errorbar(
            [row["fill"] for row in line],
            [row["failed"] for row in line],
            yerr=[row["failed_ci"] for row in line],
            label=policy,
            color=POLICY_COLOURS[policy],
            marker="o",
            markersize=3,
        )
    axes[2].set(xlabel="share of all slots that the burst fills", ylabel="failed creates, 3 attempts", yscale="symlog")
    axes[2].legend()
    return [save(figure, folder, "hierarchy")]


def findings(tables: Tables) -> list[Finding]:
    base = where(tables["hierarchy"], staleness=STALENESS, fill=FILL)
    found = []
    notes = {
        "bottom-tier-paper": "the paper's completes every create within three attempts. Here "
        f"{the(base, policy='bottom-tier-paper', fallback=0)['failed']:.0f} fail on average, and "
        f"{the(base, policy='bottom-tier-paper', fallback=1)['failed']:.0f} when the store may look for a free slot "
        "itself: it is mostly the attempts that run out, not the slots.",
        "least-load": "it ranks all eligible Workers alike, whatever their tier.",
    }
    for policy, paper in PAPER.items():
        row = the(base, policy=policy, fallback=0)
        shown = f"{row['off_tier']:.1%} ± {row['off_tier_ci']:.1%} / {row['failed']:.1f} ± {row['failed_ci']:.1f}"
        found.append(Finding(f"`{policy}`: off-tier / failed", paper, shown, notes.get(policy, "")))
    ours = the(base, policy="bottom-tier", fallback=0)
    whole = the(base, policy="bottom-tier", fallback=1)
    exact = the(base, policy="exact", fallback=1)
    emptiest = the(base, policy="emptiest", fallback=1)
    found.append(
        Finding(
            "`bottom-tier`, three attempts",
            "not in the paper",
            f"{ours['off_tier']:.1%} / {ours['failed']:.1f}",
        )
    )
    found.append(
        Finding(
            "`bottom-tier` with the store's fallback",
            "12.3 % / 0",
            f"{whole['off_tier']:.1%} ± {whole['off_tier_ci']:.1%} / {whole['failed']:.1f}",
            f"the offline optimum for the same creates is {whole['optimum_off_tier']:.1%} off-tier and "
            f"{whole['optimum_failed']:.1f} failed: we are {whole['off_tier_above_optimum'] * 100:.1f} points above "
            f"it, `exact` {exact['off_tier_above_optimum'] * 100:.1f} points. The few that fail, {exact['failed']:.1f} "
            "with `exact` too, find every Pool full that they may use; the optimum knows all creates beforehand.",
        )
    )
    found.append(
        Finding(
            "`emptiest`, the default, with the store's fallback",
            "12.3 % / 0",
            f"{emptiest['off_tier']:.1%} ± {emptiest['off_tier_ci']:.1%} / {emptiest['failed']:.1f}",
        )
    )
    return found


def remarks(tables: Tables) -> list[str]:
    rows = tables["hierarchy"]
    lines = [
        "Open in the paper and chosen by us: sizes and capacities of the Pools, who prefers which, what makes traffic "
        f"flexible, and that the burst leaves the fleet {FILL:.0%} full. So the levels are ours; the order of the "
        "policies is what can be compared."
    ]
    for fill in sorted({row["fill"] for row in rows}):
        each = ", ".join(
            f"{row['policy']} {row['off_tier']:.1%} / {row['failed']:.0f}"
            for row in (the(rows, policy=name, fill=fill, staleness=STALENESS, fallback=0) for name in SWEPT)
        )
        lines.append(f"Filled to {fill:.0%}, off-tier / failed in three attempts: {each}.")
    for staleness in STALE:
        each = ", ".join(
            f"{row['policy']} {row['off_tier']:.1%} / {row['failed']:.0f}"
            for row in (the(rows, policy=name, fill=FILL, staleness=staleness, fallback=0) for name in SWEPT)
        )
        lines.append(f"At {staleness:,} placements per snapshot: {each}.")
    return lines


EXPERIMENT = Experiment(
    name="hierarchy",
    title="Placement over Pools",
    paper="fig:placement b-c",
    parts=parts,
    tables=tables,
    draw=draw,
    findings=findings,
    remarks=remarks,
    uses=("placement", "simulate/fleet.py"),
)
