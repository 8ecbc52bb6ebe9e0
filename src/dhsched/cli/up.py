"""`dhsched up`: a whole deployment on this machine, to try things out.

A store, two Dispatch replicas, an Infer-Controller, three Workers and, with the extra `avatar`, a room and a live to
watch in it; each is a process of its own that can be killed. Except for the store it is then started again, and a line
says its new pid. Without the extra the Workers print their input. Ctrl-C stops all of them. No process stays behind,
not even after kill -9 of this one: each child watches a pipe from this process (local/child.py), and so does the
store's guardian.

With `--cells N` the store is a small Valkey Cluster, and the deployment has N cells with names whose slots lie on
different primaries; the Workers are dealt out over the cells. With `--store` as well, that is the cluster.

Access is by keys, as in production. An admin key is made for this user's other commands and written into the user's
key file (access/key_file.py); the Workers of each Pool and the room get keys of their own. The printed link to the
live's page has a viewer token, which lasts as long as one may.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dhsched.cli.sample import (
    METRICS_PORT,
    PRINTS,
    ROOM_PORT,
    Sample,
    UpSettings,
    cell_of_worker,
    sample,
    set_by_signals,
)
from dhsched.errors import BadSetting
from dhsched.local.ports import is_free
from dhsched.store.server.embedded_cluster import PRIMARIES_MAX

FACE = "avatar"
FACE_NEEDS = ("aiortc", "av", "cv2", "dhsched.avatar", "espeakng_loader", "numpy")
PORTS = (7400, 7410, 7401, ROOM_PORT, METRICS_PORT)
CELLS_MIN = 2  # A deployment of one cell needs no cluster.


def up(
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Number of Workers; the last of several is in a second Pool.")
    ] = 3,
    capacity: Annotated[int, typer.Option(min=1, max=10_000, help="Most lives per Worker.")] = 4,
    any_port: Annotated[
        bool, typer.Option("--any-port", help="Use free ports instead of 7400 to 7403 and 7410.")
    ] = False,
    runtime: Annotated[
        str | None,
        typer.Option(help="Runtime, as for `run worker`. [default: avatar if its extra is installed, else echo]"),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder for the store's data. Without it, all lives are lost at the end.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of the store. [default: a store of its own]")
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(
            min=CELLS_MIN,
            max=PRIMARIES_MAX,
            help="Number of cells, on different primaries of a Valkey Cluster. [default: one, and no cluster]",
        ),
    ] = None,
    access: Annotated[
        str, typer.Option(help="Whether callers need a token: keys (a development key is made) or open.")
    ] = "keys",
    log_level: Annotated[
        str, typer.Option(help="Log level of all processes: debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Run a whole deployment on this machine: talking faces with the extra `avatar`, else Workers that print."""
    check_store(data_dir, store, cells)
    if access not in ("keys", "open"):
        raise BadSetting(f"--access is {access!r}; it must be keys or open")
    taken = [] if any_port else [port for port in PORTS if not is_free(port)]
    if taken:
        shown = ", ".join(str(port) for port in taken)
        typer.echo(f"Port {shown} is taken, by another `dhsched up` perhaps: this one takes free ports instead.\n")
    if cells and workers < cells:
        typer.echo(f"Every cell needs a Worker: {cells} Workers instead of {workers}.\n")
        workers = cells
    free_ones = any_port or bool(taken)
    settings = UpSettings(
        workers=workers,
        capacity=capacity,
        dispatch_ports=(0, 0) if free_ones else (PORTS[0], PORTS[1]),
        infer_port=0 if free_ones else PORTS[2],
        room_port=0 if free_ones else PORTS[3],
        metrics_port=0 if free_ones else PORTS[4],
        runtime=runtime or (FACE if has_face() else PRINTS),
        data=data_dir,
        store=store,
        cells=cells or 0,
        log_level=log_level,
        access=access,
    )
    from dhsched.web.running import run_loop

    run_loop(run_up(settings))


def check_store(data_dir: Path | None, store: str | None, cells: int | None) -> None:
    """Raise BadSetting for options of the store that exclude each other."""
    if store is not None and data_dir is not None:
        raise BadSetting(
            "--data-dir and --store were both given; --store names a store that keeps its own data: give one of them"
        )
    if cells and data_dir is not None:
        raise BadSetting(
            "--data-dir and --cells were both given; the cluster that this command starts keeps nothing: leave one of "
            "them out, or give --cells with --store and the URL of a Valkey Cluster, which keeps its own data"
        )


def has_face() -> bool:
    """Return whether the extra `avatar` is installed."""
    return all(importlib.util.find_spec(module) is not None for module in FACE_NEEDS)


async def run_up(settings: UpSettings) -> None:
    """Run the deployment until SIGINT or SIGTERM."""
    stop = set_by_signals()
    async with sample(settings, print_line, say=print_progress, restart=True) as made:
        print_what_runs(settings, made)
        await stop.wait()


def print_progress(what: str) -> None:
    """Print to standard error: standard output begins when everything runs."""
    typer.echo(f"{what} ...", err=True)


def print_line(_name: str, line: bytes) -> None:
    os.write(sys.stdout.fileno(), line)


def print_what_runs(settings: UpSettings, made: Sample) -> None:
    lines = ["A deployment is up. Ctrl-C stops everything.", ""]
    lines += [f"  {server.name:<11} pid {server.pid:<8} {server.about}".rstrip() for server in made.servers]
    does = f"runs {settings.runtime}" if made.page else "prints what it is given below"
    for process in made.processes.processes:
        where = process.url or f"{does}, {place_of_worker(settings, made, process.name)}"
        lines.append(f"  {process.name:<11} pid {process.pid:<8} {where}")
    if made.page:
        lines += ["", "Open this in a browser, type, and kill the Worker that it names:", f"  {made.page}"]
    elif not has_face():
        lines += ["", "For a face that speaks: pip install 'dhsched[avatar]'"]
    lines += about_cells(made)
    tries = what_to_try(made, usual=settings.dispatch_ports == PORTS[:2])
    lines += ["", "Try, in another terminal:", *(f"  {line}" for line in tries), "  dhsched live why hello", ""]
    os.write(sys.stdout.fileno(), ("\n".join(lines) + "\n").encode())


def place_of_worker(settings: UpSettings, made: Sample, name: str) -> str:
    """Return the Pool of a Worker, and its cell where there are several."""
    number = int(name.rpartition("-")[2])
    cell = cell_of_worker(made.processes, number)
    return f"Pool {settings.pool_of(number)}" + (f", cell {cell}" if cell else "")


def about_cells(made: Sample) -> list[str]:
    """Return what there is to know of several cells; nothing of a single one."""
    if not (cells := made.processes.cells):
        return []
    shown = f"{', '.join(cells[:-1])} and {cells[-1]}"
    lines = ["", f"The cells are {shown}; a live is in one of them, by its id, for ever."]
    if made.servers:
        lines += ["Kill the store of one: the lives of the others go on. It is not started again."]
    return lines


def what_to_try(made: Sample, *, usual: bool) -> list[str]:
    """Return commands for a user's first live. The verbs know the `usual` ports, and are told others."""
    urls = ",".join(each.url for each in made.processes.replicas)
    at = [] if usual else [f"export DHSCHED_URL={urls}"]
    cells = ["dhsched cells ls"] if made.processes.cells else []
    return [*at, *cells, "dhsched live create anna --id hello", 'dhsched live push hello "Hello, world." --boundary']
