"""`dhsched simulate`: compare the placement policies on a planned or running fleet, without changing it; or how often a
create finds its cell full, where the fleet is divided over several cells."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import msgspec
import typer

from dhsched.cells.fixed import CELLS_MAX
from dhsched.cli.remote import URL, Json, Server, Url, all_pages
from dhsched.cli.sizes import sizes
from dhsched.cli.tables import table
from dhsched.errors import BadValue
from dhsched.placement import DEFAULT_POLICY, POLICIES
from dhsched.simulate import (
    FILL,
    CellsResult,
    Ids,
    Plan,
    Result,
    cell_counts,
    plan_of,
    read_plan,
    simulate,
    simulate_cells,
    workload_of,
)

SIDE_BY_SIDE = ("emptiest", "bottom-tier", "bottom-tier-paper", "exact", "strict-min", "power-of-two", "orleans-ac")
COLUMNS = ("policy", "per snapshot", "spread", "util. spread", "rejected", "failed", "off-tier", "fallback")
CELL_COLUMNS = ("cells", "ids", "per snapshot", "policy", "full", "failed", "cell spread", "fill")


def simulate_policies(
    plan: Annotated[Path | None, typer.Argument(help="YAML or JSON file with a fleet and its workload.")] = None,
    running: Annotated[bool, typer.Option("--running", help="Simulate the fleet of the running deployment.")] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy to compare. May be repeated. [default: seven policies; with cells the default one]"),
    ] = None,
    creates: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Number of creates, instead of the plan's.")
    ] = None,
    cells: Annotated[
        str | None, typer.Option(help="Numbers of cells, with commas, to compare with one big cell.")
    ] = None,
    fill: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help=f"With cells, share of the slots that stays taken. [default: {FILL}]"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Runs per policy; the result is their mean.")] = 3,
    plot: Annotated[Path | None, typer.Option(help="PNG or SVG file into which the spreads are drawn.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Compare the placement policies on your fleet: spread, rejections, failures.

    Every policy gets the same fleet and the same creates. `per snapshot` is the number of placements between two
    refreshes of the replicas' views: the more, the staler the views.

    With --cells: how often a create is answered FULL although another cell has a free slot (full), for ids that are
    fixed, ids that a client redraws, and ids that the server makes.
    """
    chosen = _planned(plan, running, url, creates=creates, cells=cells, fill=fill)
    counts = cell_counts(chosen)
    names = policy or ([DEFAULT_POLICY.name] if counts else list(SIDE_BY_SIDE))
    for name in names:
        if name not in POLICIES:
            raise BadValue(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    if counts:
        if plot is not None:
            raise BadValue("--plot draws the spreads of one cell; leave it out, or leave out the cells")
        show_cells(chosen, counts, names, seeds, json=json)
        return
    if plot is not None:
        _check_plot(plot)
    rows = list(_progress(_rows(chosen, names, seeds), len(names) * len(chosen.placements_per_snapshot)))
    if plot is not None:
        draw(rows, plot)
    if json:
        typer.echo(json_.dumps({"seeds": seeds, "rows": rows}, indent=2))
        return
    table(COLUMNS, [_shown(row) for row in rows])
    if plot is not None:
        typer.echo(f"drawn into {plot}")


def _planned(
    plan: Path | None, running: bool, url: str, *, creates: int | None, cells: str | None, fill: float | None
) -> Plan:
    """Return the plan that was given, with the values that options replace."""
    if (plan is None) == (not running):
        raise BadValue("name a plan file, or give --running for the fleet of the running deployment")
    chosen = read_plan(plan) if plan is not None else running_plan(url, creates)
    given = {"creates": creates, "fill": fill, "cells": None if cells is None else counts_of(cells)}
    return msgspec.structs.replace(chosen, **{name: value for name, value in given.items() if value is not None})


def counts_of(cells: str) -> list[int]:
    if not (counts := [*sizes(cells, "--cells", CELLS_MAX)]):
        raise BadValue("--cells names no number; give some, like 1,4,16")
    return counts


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


def _shown(row: dict[str, Any]) -> list[str]:
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


# -- several cells


def show_cells(plan: Plan, counts: Sequence[int], names: Sequence[str], seeds: int, *, json: bool) -> None:
    """Run the plan over each number of cells, and print how often a create found its cell full."""
    runs = sum(len(_kinds(count)) for count in counts) * len(names) * len(plan.placements_per_snapshot)
    rows = list(_progress(_cell_rows(plan, counts, names, seeds), runs))
    if json:
        fill = FILL if plan.fill is None else plan.fill
        told = {"seeds": seeds, "fill": fill, "worker_cells": plan.worker_cells or "even"}
        typer.echo(json_.dumps({**told, "rows": rows}, indent=2))
        return
    table(CELL_COLUMNS, [_shown_cells(row) for row in rows])


def _kinds(count: int) -> tuple[Ids, ...]:
    """Return the kinds of ids to compare; in one cell they are all alike."""
    return tuple(Ids) if count > 1 else (Ids.FIXED,)


def _cell_rows(plan: Plan, counts: Sequence[int], names: Sequence[str], seeds: int) -> Iterator[dict[str, Any]]:
    from dhsched.client.lives import DRAWS_MAX  # Late: the client is not needed for the other table.

    workloads = [workload_of(plan, seed) for seed in range(1, seeds + 1)]
    for every in plan.placements_per_snapshot:
        for name in names:
            for count in counts:
                for ids in _kinds(count):
                    results = [
                        simulate_cells(
                            workload,
                            POLICIES[name],
                            cells=count,
                            ids=ids,
                            placements_per_snapshot=every,
                            redraws=DRAWS_MAX,
                            fill=FILL if plan.fill is None else plan.fill,
                            worker_cells=plan.worker_cells or "even",
                            seed=seed,
                        )
                        for seed, workload in enumerate(workloads, 1)
                    ]
                    yield _cell_row(name, every, results)


def _cell_row(name: str, every: int, results: Sequence[CellsResult]) -> dict[str, Any]:
    first = results[0]
    return {
        "cells": first.cells,
        "ids": first.ids.value if first.cells > 1 else "any",
        "policy": name,
        "placements_per_snapshot": every,
        "creates": first.result.creates,
        "full_share": mean(one.full_share for one in results),
        "full_elsewhere": mean(one.full_elsewhere for one in results),
        "failed_creates": mean(one.result.failed_creates for one in results),
        "redraws": mean(one.redraws for one in results),
        "fill": mean(one.fill for one in results),
        "cell_spread": mean(one.cell_spread for one in results),
        "spread": mean(one.result.spread for one in results),
        "utilisation_spread": mean(one.result.utilisation_spread for one in results),
        "rejected_candidates": mean(one.result.rejected_candidates for one in results),
        "off_tier_share": mean(one.result.off_tier_share for one in results),
    }


def _shown_cells(row: dict[str, Any]) -> list[str]:
    return [
        str(row["cells"]),
        row["ids"],
        str(row["placements_per_snapshot"]),
        row["policy"],
        f"{row['full_share']:.2%}",
        f"{row['failed_creates']:.1f}",
        f"{row['cell_spread']:.3f}",
        f"{row['fill']:.1%}",
    ]


# -- progress and plot


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
