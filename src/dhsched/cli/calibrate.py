"""`dhsched calibrate`: find the capacity to set for a runtime on this machine."""

from __future__ import annotations

import asyncio
import json as json_
import os
from dataclasses import asdict
from typing import Annotated

import typer

from dhsched.calibrate.search import INFINITE, Step, disturbed
from dhsched.cli.remote import Json
from dhsched.errors import BadSetting, BadValue

TEXT = "Is one of the lives late by now?"
NO_ROOM = "There is no room: a runtime that draws only what it can publish draws nothing."
BUSY = 0.5  # With a higher load per core before anything is started, a line says that the result may be too small.
BAR = 40  # Characters of the bar of a live that is as slow as the limit.
BAR_MAX = 70  # A longer bar is cut.


def calibrate(
    runtime: Annotated[str, typer.Argument(help="Runtime: package.module:function, or a built-in one.")] = "",
    exec_: Annotated[str, typer.Option("--exec", metavar="CMD", help="Command, instead of a runtime.")] = "",
    setup: Annotated[str, typer.Option(help="Function package.module:function that runs once, before.")] = "",
    process_per_live: Annotated[
        bool, typer.Option("--process-per-live", help="Run each live's runtime in a process of its own.")
    ] = False,
    text: Annotated[str, typer.Option(help="Text that every live says, again and again.")] = TEXT,
    config: Annotated[str, typer.Option(help="JSON object with the configuration of the lives.")] = "{}",
    seconds: Annotated[float, typer.Option(min=0.5, max=3_600, help="Shortest time of one step.")] = 10.0,
    most: Annotated[int, typer.Option("--max", min=1, max=10_000, help="Largest number of lives to try.")] = 64,
    tolerance: Annotated[
        float, typer.Option(min=0.01, max=10, help="Share by which an item may take longer than with one live alone.")
    ] = 0.1,
    item_s: Annotated[
        float, typer.Option(min=0, max=3_600, help="Seconds that an item may take, instead of --tolerance.")
    ] = 0.0,
    room: Annotated[
        bool | None,
        typer.Option("--room/--no-room", help="A private room to publish to. [default: yes if its extra is installed]"),
    ] = None,
    json: Json = False,
) -> None:
    """Find how many lives may speak at once on one Worker of this machine before their output comes late.

    A private deployment is started. Lives that always have the next item waiting speak without a pause, so the time
    from one ack to the next is the time that an item takes. The capacity is the largest number of lives with which no
    live is slower than the limit. Output that a runtime leaves out, and reports with Session.late, counts as time too.
    """
    from dhsched.calibrate.drive import Calibration, calibrate
    from dhsched.local.deployment import room_installed

    if bool(runtime) == bool(exec_):
        raise BadValue("name a runtime, or give --exec; not both")
    try:
        settings = json_.loads(config)
    except ValueError as error:
        raise BadValue(f"--config is not JSON: {error}") from None
    if room and not room_installed():
        raise BadSetting("--room needs the extra avatar: pip install 'dhsched[avatar]'")
    with_room = room_installed() if room is None else room
    progress("A room runs on this machine, too: lives publish to it." if with_room else NO_ROOM)
    if (load := os.getloadavg()[0]) > BUSY * (cores := os.cpu_count() or 1):
        progress(f"This machine is busy (load {load:.1f}, {cores} cores): the capacity may be found too small.")
    given = Calibration(
        runtime=runtime,
        command=exec_,
        setup=setup,
        process_per_live=process_per_live,
        text=text,
        config=settings,
        seconds=seconds,
        most=most,
        tolerance=tolerance,
        item_s=item_s,
        room=with_room,
    )
    found = asyncio.run(calibrate(given, lambda step: progress(line_of(step)), lambda what: progress(f"{what} ...")))
    if json:
        typer.echo(json_.dumps(asdict(found), indent=2))
        return
    typer.echo(f"time per item of the slowest live; the limit is {found.limit_s:.3f} s")
    if any(step.missed_s > 0 for step in found.steps):
        typer.echo("+ is output that was left out or late, as the runtime says")
    for step in found.steps:
        typer.echo(f"{step.lives:5}  {bar_of(step, found.limit_s)}")
    if found.capacity == 0:
        raise BadValue(
            f"one live alone takes {found.steps[0].slowest_s:.3f} s per item, longer than --item-s {item_s:g}"
        )
    if found.capacity == 1 and found.bounded and not item_s:
        typer.echo("Two lives were slower than one: if the runtime does not speak at a fixed pace, give --item-s.")
    if disturbed(found.steps, tolerance):
        typer.echo("Fewer lives were slower than more: something else uses this machine. Measure again.")
    if not found.bounded:
        typer.echo(f"No live was late with --max {most}; the capacity may be larger.")
    typer.echo(f"capacity: {found.capacity}")


def progress(what: str) -> None:
    typer.echo(what, err=True)


def line_of(step: Step) -> str:
    lives = "live" if step.lives == 1 else "lives"
    if step.slowest_s == INFINITE:
        return f"{step.lives} {lives}: fewer than two acks of one of them, late"
    missed = f", {step.missed_s:.3f} s of it left out or late" if step.missed_s > 0 else ""
    return f"{step.lives} {lives}: {step.slowest_s:.3f} s per item{missed}" + (": late" if step.late else "")


def bar_of(step: Step, limit_s: float) -> str:
    if step.slowest_s == INFINITE:
        return f"{'#' * BAR_MAX} fewer than two acks, late"
    length = min(BAR_MAX, round(step.slowest_s / limit_s * BAR))
    missed = round(length * step.missed_s / step.slowest_s)
    return f"{'#' * (length - missed)}{'+' * missed} {step.slowest_s:.3f} s" + (" late" if step.late else "")
