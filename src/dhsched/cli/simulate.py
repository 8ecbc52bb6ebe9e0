"""`dhsched simulate`: compare the placement policies on a planned or running fleet, without changing it."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import msgspec
import typer

from dhsched.cli.remote import URL, Json, Server, Url, all_pages
from dhsched.cli.tables import table
from dhsched.errors import BadValue
from dhsched.placement import DEFAULT_POLICY, POLICIES
from dhsched.simulate import Plan, Result, plan_of, read_plan, simulate, workload_of

SIDE_BY_SIDE = ("emptiest", "bottom-tier", "bottom-tier-paper", "exact", "strict-min", "power-of-two", "orleans-ac")
COLUMNS = ("policy", "per snapshot", "spread", "util. spread", "rejected", "failed", "off-tier", "fallback")


def simulate_policies(
    plan: Annotated[Path | None, typer.Argument(help="YAML or JSON file with a fleet and its workload.")] = None,
    running: Annotated[bool, typer.Option("--running", help="Simulate the fleet of the running deployment.")] = False,
    policy: Annotated[
        list[str] | None, typer.Option(help="Policy to compare. May be repeated. [default: seven policies]")
    ] = None,
    creates: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Number of creates, instead of the plan's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Runs per policy; the result is their mean.")] = 3,
    plot: Annotated[Path | None, typer.Option(help="PNG or SVG file into which the spreads are drawn.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Compare the placement policies on your fleet: spread, rejections, failures.

    Every policy gets the same fleet and the same creates. `per snapshot` is the number of placements between two
    refreshes of the replicas' views: the more, the staler the views.
    """
    if (plan is None) == (not running):
        raise BadValue("name a plan file, or give --running for the fleet of the running deployment")
    chosen = read_plan(plan) if plan is not None else running_plan(url, creates)
    if creates is not None:
        chosen = msgspec.structs.replace(chosen, creates=creates)
    names = policy or list(SIDE_BY_SIDE)
    for name in names:
        if name not in POLICIES:
            raise BadValue(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    if plot is not None:
        _check_plot(plot)
    rows = list(_progress(_rows(chosen, names, seeds), len(names) * len(chosen.placements_per_snapshot)))
    if plot is not None:
        draw(rows, plot)
    if json:
        typer.echo(json_.dumps({"seeds": seeds, "rows": rows}, indent=2))
        return
    table(COLUMNS, [_cells(row) for row in rows])
    if plot is not None:
        typer.echo(f"drawn into {plot}")


def running_plan(url: str, creates: int | None) -> Plan:
    """Return a plan with the fleet of the running deployment and, by default, one create per free slot."""
    server = Server(url)
    workers = [row for row in all_pages(url, "workers", "workers", {}, 20_000) if row["status"] == "ready"]
    digital_ids = server.call("GET", "digital-ids")["digital_ids"]
    if not workers or not digital_ids:
        raise BadValue(
            f"nothing to simulate: {len(workers)} ready Workers and {len(digital_ids)} DigitalIDs; start Workers and "
            "put a DigitalID, or give a plan file"
        )
    pools = server.call("GET", "pools")["pools"]
    wanted = ("priority", "tier_workers_min", "tier_divisor", "tau_slots")
    known = {row["pool"] for row in workers} | {pool["name"] for pool in pools}
    free = sum(row["capacity"] - row["load"] for row in workers)
    return plan_of(
        {
            "pools": [{"name": pool["name"], **{key: pool["config"][key] for key in wanted}} for pool in pools],
            "workers": [{key: row[key] for key in ("pool", "capacity", "load")} for row in workers],
            "digital_ids": [
                {"name": each["name"], "pools": entries}
                for each in digital_ids
                if (entries := [entry for entry in each["config"]["pools"] if entry["pool"] in known])
            ],
            "creates": creates or max(1, free),
        },
        url,
    )


def _rows(plan: Plan, names: Sequence[str], seeds: int) -> Iterator[dict[str, Any]]:
    workloads = [workload_of(plan, seed) for seed in range(1, seeds + 1)]
    for every in plan.placements_per_snapshot:
        for name in names:
            results = [
                simulate(workload, POLICIES[name], placements_per_snapshot=every, seed=seed)
                for seed, workload in enumerate(workloads, 1)
            ]
            yield _row(name, every, results)


def _row(name: str, every: int, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "policy": name,
        "default": name == DEFAULT_POLICY.name,
        "placements_per_snapshot": every,
        "spread": mean(result.spread for result in results),
        "utilisation_spread": mean(result.utilisation_spread for result in results),
        "rejected_candidates": mean(result.rejected_candidates for result in results),
        "failed_creates": mean(result.failed_creates for result in results),
        "off_tier_share": mean(result.off_tier_share for result in results),
        "fallback_placements": mean(result.fallback_placements for result in results),
        "pools": {
            pool: {
                "spread": mean(result.pool_spreads[pool] for result in results),
                "utilisation_spread": mean(result.pool_utilisation_spreads[pool] for result in results),
            }
            for pool in results[0].pool_spreads
        },
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["policy"],
        str(row["placements_per_snapshot"]),
        f"{row['spread']:.1f}",
        f"{row['utilisation_spread']:.3f}",
        f"{row['rejected_candidates']:.1f}",
        f"{row['failed_creates']:.1f}",
        f"{row['off_tier_share']:.1%}",
        f"{row['fallback_placements']:.1f}",
    ]


def _progress(rows: Iterator[dict[str, Any]], total: int) -> Iterator[dict[str, Any]]:
    """Yield the rows as they come, with a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("simulating", total=total)
        for row in rows:
            bar.advance(task)
            yield row


def _check_plot(path: Path) -> None:
    """Raise BadValue if the plot cannot be drawn; called before the simulation, which takes long."""
    if path.suffix not in (".png", ".svg"):
        raise BadValue(f"--plot {path}: the name must end in .png or .svg")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadValue("--plot needs matplotlib: pip install 'dhsched[evaluation]'") from None


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the spread over the placements per snapshot into `path`, one curve per policy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), constrained_layout=True)
    for name in dict.fromkeys(row["policy"] for row in rows):
        points = [row for row in rows if row["policy"] == name]
        axes.plot(
            [row["placements_per_snapshot"] for row in points],
            [row["spread"] for row in points],
            marker="o",
            label=name,
        )
    axes.set_xscale("log")
    axes.set_xlabel("placements per snapshot")
    axes.set_ylabel("spread: highest minus lowest load")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
