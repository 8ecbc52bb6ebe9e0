"""Our runtime beside released Orleans (fig:orleans-placement, fig:orleans-recovery): real processes, real HTTP.

Placement: 16,000 lives over 2 to 16 Workers by 16 concurrent issuers; how far apart the Workers' loads are. Failure: a
Worker is killed, or asked to leave, and up to 300 of its lives are followed for 90 s: when the loss is noticed, when
half of the lives are claimed again, how many are. A Worker with all of its share of the 16,000 lives leaves, and one
with 300 lives. Orleans cannot run here: its figures are the paper's, quoted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt

from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.placement import POLICIES
from dhsched.simulate import simulate
from evaluation.deployment import WAIT_S, Deployment, deployment
from evaluation.experiment import Experiment, Finding, Part, Row, Size, Tables
from evaluation.files import save
from evaluation.statistics import mean_and_half, means, where
from evaluation.workloads import burst

WORKERS = (2, 4, 8, 16)
LOST_OF = (4, 8, 16)
SPREADS, UNBUDGETED, LOSSES = 20, 2, 5  # Runs of each size; the paper has 20 of placements and 5 of losses.
HOWS = {"leave": "graceful leave", "leave_few": "graceful leave of 300 lives", "kill": "abrupt kill"}
ISSUERS = 16
FOLLOWED_MAX = 300
FOLLOW_S = 90.0
POLL_S = 0.02
DRAIN_S = 60.0
SPARE = 1.5  # Capacity beyond the lives, so that the others can take what one Worker leaves.
EQUIVALENT = (1, 3, 10, 30, 100, 300, 1_000)
ORLEANS = {
    "spread": "3.3 to 11.0 (quoted)",
    "share": "0.041 to 1.10 % (quoted)",
    "leave": "156-212 ms, 281-424 ms (quoted)",
    "leave_few": "156-212 ms, 281-424 ms (quoted)",
    "kill": "about 11.5 s both at 4 and 8 (quoted)",
    "recovered": "91.3 % default, 100 % preview directory at 16 (quoted)",
}


def run_spread(workers: int, lives: int, number: int) -> list[Row]:
    return asyncio.run(_run_spread(workers, lives, number))


async def _run_spread(workers: int, lives: int, number: int) -> list[Row]:
    async with deployment() as made:
        began = time.monotonic()
        await _fill(made, workers, lives)
        loads = [row["load"] for row in await made.worker_rows()]
        row: Row = {"workers": workers, "run": number, "lives": sum(loads), "spread": max(loads) - min(loads)}
        row["share_percent"] = round(100 * row["spread"] / (sum(loads) / len(loads)), 4)
        return [row | {"seconds": round(time.monotonic() - began, 1)}]


def run_unbudgeted(workers: int, lives: int, number: int) -> list[Row]:
    return asyncio.run(_run_unbudgeted(workers, lives, number))


async def _run_unbudgeted(workers: int, lives: int, number: int) -> list[Row]:
    """The same, through replicas that let as many lives start on a Worker at once as come (unbudgeted.py)."""
    async with deployment(dispatch=1) as made:
        made.replicas.clear()
        for n in range(2):
            made.replicas.append(await made.start(f"open-{n}", module="evaluation.unbudgeted", role="dispatch"))
        began = time.monotonic()
        await _fill(made, workers, lives)
        loads = [row["load"] for row in await made.worker_rows()]
        row: Row = {"workers": workers, "run": number, "spread": max(loads) - min(loads)}
        return [row | {"seconds": round(time.monotonic() - began, 1)}]


async def _fill(made: Deployment, workers: int, lives: int) -> None:
    capacity = round(SPARE * lives / max(1, workers - 1))
    for number in range(workers):
        await made.add_host(f"h{number}", workers=1, capacity=capacity, drain_s=DRAIN_S)
    await made.until_workers(workers, WAIT_S)
    await asyncio.sleep(1.5)  # Every replica has seen all of them.
    await made.create_all(iter([f"l{n}" for n in range(lives)]), ISSUERS)


def run_loss(workers: int, how: str, lives: int, number: int, follow_s: float) -> list[Row]:
    return asyncio.run(_run_loss(workers, how, lives, number, follow_s))


async def _run_loss(workers: int, how: str, lives: int, number: int, follow_s: float) -> list[Row]:
    async with deployment() as made:
        await _fill(made, workers, lives)
        await made.until_claimed()
        victim = next(row["worker"] for row in await made.worker_rows() if row["worker"].startswith("h1-"))
        followed = (await made.lives_of(victim))[:FOLLOWED_MAX]
        before = [epoch for epoch, _ in await made.owners(followed)]
        began = time.monotonic()
        os.kill(made.hosts["h1"], signal.SIGKILL if how == "kill" else signal.SIGTERM)
        noticed_ms, claimed_ms = await _follow(made, victim, followed, before, began, follow_s)
        row: Row = {"workers": workers, "how": how, "run": number, "lives": lives, "followed": len(followed)}
        row["noticed_ms"] = round(noticed_ms, 1)
        row["median_ms"] = round(median(claimed_ms), 1) if claimed_ms else follow_s * 1e3
        row["last_ms"] = round(max(claimed_ms, default=follow_s * 1e3), 1)
        return [row | {"recovered_percent": round(100 * len(claimed_ms) / max(1, len(followed)), 3)}]


async def _follow(
    made: Deployment, victim: str, followed: list[str], before: list[int], began: float, follow_s: float
) -> tuple[float, list[float]]:
    """When the store first shows the loss, and when each live had a claimed generation after it."""
    noticed = follow_s * 1e3
    claimed: dict[str, float] = {}
    while len(claimed) < len(followed) and time.monotonic() - began < follow_s:
        record = await made.store.link.call("HMGET", made.store.keys.of("worker", victim), "lost", "gone", "mode")
        now_ms = (time.monotonic() - began) * 1e3
        lost, gone, mode = (_text(value) for value in record)
        if noticed > now_ms and (lost == "1" or gone == "1" or mode in ("", "draining")):
            noticed = now_ms
        owners = await made.owners(followed)
        now_ms = (time.monotonic() - began) * 1e3
        for live, was, (epoch, active) in zip(followed, before, owners, strict=True):
            if epoch > was and active:
                claimed.setdefault(live, now_ms)
        await asyncio.sleep(POLL_S)
    return min(noticed, *claimed.values()) if claimed else noticed, list(claimed.values())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def run_model(staleness: int, workers: int, seeds: int) -> list[Row]:
    """The same burst in the simulator, to say how old a view the runtime's spread looks like."""
    spreads = []
    for seed in range(1, seeds + 1):
        workload = burst(seed, workers=workers, replicas=2, capacity=round(SPARE * 16_000 / workers), load_max=0)
        result = simulate(workload, POLICIES["bottom-tier"], placements_per_snapshot=staleness, seed=seed)
        spreads.append(result.spread)
    return [{"workers": workers, "staleness": staleness, "spread": round(mean_and_half(spreads)[0], 3)}]


def parts(size: Size) -> list[Part]:
    made: list[Part] = []
    lives = size.pick(16_000, 200)
    sizes = (2, 4) if size.quick else WORKERS
    for what, run, runs in (("spread", run_spread, SPREADS), ("unbudgeted", run_unbudgeted, UNBUDGETED)):
        for number, workers in product(range(size.pick(runs, 1)), sizes):
            arguments: dict[str, Any] = {"workers": workers, "lives": lives, "number": number}
            made.append(Part(f"{what}_{workers}_{number}", run, arguments))
    for number, workers, how in product(range(size.pick(LOSSES, 1)), (4,) if size.quick else LOST_OF, HOWS):
        there = min(lives, workers * FOLLOWED_MAX) if how == "leave_few" else lives
        arguments = {"workers": workers, "how": how, "lives": there, "number": number, "follow_s": FOLLOW_S}
        made.append(Part(f"loss_{workers}_{how}_{number}", run_loss, arguments))
    for staleness in EQUIVALENT:
        arguments = {"staleness": staleness, "workers": 16, "seeds": size.pick(5, 1)}
        made.append(Part(f"model_{staleness}", run_model, arguments))
    return made


def tables(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    def of(prefix: str) -> list[Row]:
        return [row for name, made in rows.items() if name.startswith(prefix) for row in made]

    measured = ("noticed_ms", "median_ms", "last_ms", "recovered_percent")
    runs = [
        {"workers": row["workers"], "budget": budget, "run": row["run"], "spread": row["spread"]}
        for prefix, budget in (("spread_", 1), ("unbudgeted_", 0))
        for row in of(prefix)
    ]
    return {
        "runtime_runs": runs,
        "runtime_spread": means(of("spread_"), ("workers",), ("lives", "spread", "share_percent", "seconds")),
        "runtime_unbudgeted": means(of("unbudgeted_"), ("workers",), ("spread", "seconds")),
        "runtime_loss": means(of("loss_"), ("workers", "how"), ("lives", "followed", *measured)),
        "runtime_model": of("model_"),
    }


def draw(tables: Tables, folder: Path) -> list[str]:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
    rows = tables["runtime_spread"]
    for budget, colour, label in ((1, "#0b6e4f", "ours"), (0, "#56b870", "ours, starts not limited")):
        runs = where(tables["runtime_runs"], budget=budget)
        axes[0].scatter([row["workers"] for row in runs], [row["spread"] for row in runs], color=colour, label=label)
    axes[0].axhspan(3.3, 11.0, color="#1f5fa8", alpha=0.2, label="Orleans 10.3.0, mean of 20, quoted")
    axes[0].set(xlabel="Workers", ylabel="max-min spread (lives)", title="placement: each run")
    axes[0].set_yscale("symlog", linthresh=1)  # A spread of 0 is shown, too.
    axes[0].set_ylim(-0.3, 100)
    axes[0].legend(fontsize=7, loc="upper right")
    model = tables["runtime_model"]
    axes[1].plot([row["staleness"] for row in model], [row["spread"] for row in model], color="#0b6e4f", marker="o")
    most = max(row["workers"] for row in rows)
    for row in where(rows, workers=most):
        axes[1].axhline(row["spread"], color="grey", linestyle="--")
    axes[1].set(xscale="log", xlabel="placements per snapshot", ylabel="spread in the simulator, 16 Workers")
    axes[1].set_title(f"dashed: measured, {most} Workers")
    for how, colour in (("leave", "#0b6e4f"), ("leave_few", "#56b870"), ("kill", "#c0392b")):
        line = where(tables["runtime_loss"], how=how)
        at = [row["workers"] for row in line]
        axes[2].plot(
            at, [row["noticed_ms"] for row in line], color=colour, ls="--", marker="o", label=f"{HOWS[how]}: noticed"
        )
        axes[2].plot(at, [row["median_ms"] for row in line], color=colour, marker="s", label=f"{HOWS[how]}: median")
    axes[2].axhline(11_500, color="#1f5fa8", linestyle=":", label="Orleans abrupt, quoted")
    axes[2].axhspan(281, 424, color="#1f5fa8", alpha=0.2, label="Orleans graceful, quoted")
    axes[2].set(yscale="log", xlabel="Workers", ylabel="ms after the loss")
    axes[2].legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return [save(figure, folder, "runtime")]


def findings(tables: Tables) -> list[Finding]:
    rows, model = tables["runtime_spread"], tables["runtime_model"]
    spreads, shares = [row["spread"] for row in rows], [row["share_percent"] for row in rows]
    widest = max(rows, key=lambda row: int(row["workers"]))
    like = min(model, key=lambda row: abs(row["spread"] - widest["spread"]))
    found = [
        Finding(
            f"mean spread, {min(row['workers'] for row in rows)} to {widest['workers']} Workers",
            ORLEANS["spread"],
            f"{min(spreads):.1f} to {max(spreads):.1f}",
        ),
        Finding("as a share of the mean load", ORLEANS["share"], f"{min(shares):.3f} to {max(shares):.3f} %"),
        Finding(
            "the same spread in the simulator",
            "tens to roughly one hundred placements per snapshot",
            f"about {like['staleness']} (spread {like['spread']:.1f})",
            "the simulator's nearest point, with 16 Workers and 2 replicas. "
            + (
                "The runtime's Workers are further apart than any of them."
                if widest["spread"] > max(row["spread"] for row in model)
                else "With share-weighted deltas the spread hardly grows with age, so this says little."
            ),
        ),
    ]
    for how, what in HOWS.items():
        for row in where(tables["runtime_loss"], how=how):
            found.append(
                Finding(
                    f"{what}, {row['workers']} Workers: noticed, median re-claim",
                    ORLEANS[how],
                    f"{row['noticed_ms']:.0f} ms, {row['median_ms']:.0f} ms; {row['recovered_percent']:.1f} % of "
                    f"{row['followed']:.0f} in 90 s",
                )
            )
    found.append(Finding("recovered after a kill", ORLEANS["recovered"], _recovered(tables)))
    return found


def _recovered(tables: Tables) -> str:
    rows = where(tables["runtime_loss"], how="kill")
    return ", ".join(f"{row['recovered_percent']:.1f} % at {row['workers']}" for row in rows)


def remarks(tables: Tables) -> list[str]:
    spread, loss, limits = tables["runtime_spread"][0], tables["runtime_loss"][0], DEFAULT_LIMITS
    return [
        f"{spread['runs']} fresh-process runs of each size with {spread['lives']:.0f} lives (the paper: 20), "
        f"{loss['runs']} of each loss (the paper: 5). Two Dispatch replicas, one Infer-Controller, `null` runtimes "
        "that start at once: our times hold no GPU work, and neither do the paper's grains.",
        f"At most {limits.starts_create_max} lives may be starting on a Worker at once, and up to {limits.pace_max} "
        "times as many where starts are quick. Where creates come faster than so many are claimed, that budget decides "
        "who takes the next one, and loads drift apart by who claims sooner. Spread (and seconds for all creates) with "
        f"it and without: {'; '.join(_budgets(tables))}.",
        "A graceful leave is no outage: each live goes on where it is until its target has prepared it, "
        f"{limits.cutovers_max} of a Worker at a time and up to {limits.pace_max} times as many, and is silent only "
        "while it is cut over. The median is when a live has moved, not how long it was silent; `dhsched bench "
        f"recovery` measures that. After a kill {limits.starts_recover_max} lives at a time, and up to "
        f"{limits.pace_max} times as many, may start on a survivor.",
        f"A graceful leave is SIGTERM with {DRAIN_S:g} s to drain; it is noticed when the Worker is shown as draining.",
        "Times depend on the machine: two cores for everything here.",
    ]


def _budgets(tables: Tables) -> list[str]:
    said = []
    for row in tables["runtime_spread"]:
        for other in where(tables["runtime_unbudgeted"], workers=row["workers"]):
            said.append(
                f"{row['workers']} Workers {row['spread']:.1f} ({row['seconds']:.0f} s), {other['spread']:.1f} "
                f"({other['seconds']:.0f} s)"
            )
    return said


EXPERIMENT = Experiment(
    name="runtime",
    title="Our runtime beside released Orleans",
    paper="fig:orleans-placement, fig:orleans-recovery",
    parts=parts,
    tables=tables,
    draw=draw,
    findings=findings,
    remarks=remarks,
    measured=("runtime_runs", "runtime_spread", "runtime_unbudgeted", "runtime_loss"),
    alone=True,
    uses=("ownership", "placement", "store", "dispatch", "infer", "worker"),
)
