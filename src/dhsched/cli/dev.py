"""`dhsched dev my_avatar:avatar`: a deployment on this machine with a runtime that is being written.

When a source file changes, a new Worker with the new code is started beside the one that runs, which is then drained:
its lives go on in their next generation, with the new code. If the new code does not parse, or its Worker does not
start, the Worker before goes on. Ctrl-C stops everything, as for `dhsched up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from dhsched.cli import dev_lines
from dhsched.cli.dev_sources import Sources, folder_of, snapshot, syntax_error
from dhsched.cli.sample import Sample, UpSettings, sample, set_by_signals, start_worker
from dhsched.cli.up import PORTS, print_progress, what_to_try
from dhsched.errors import BadSetting, DhschedError
from dhsched.local.deployment import Deployment, room_installed
from dhsched.local.ports import is_free
from dhsched.local.process import Process
from dhsched.local.waiting import until
from dhsched.tasks import cancel, first
from dhsched.types import name_of
from dhsched.web.logs import shows_colours

POLL_S = 0.25  # Time between two readings of the files; a change counts after two.
DRAIN_S = 10  # Lives of the Worker with the old code that have not moved by then are stopped, and go on elsewhere.
GRACE_S = 10.0  # A Worker that has not ended this long after its drain is killed.
START_S = 600.0  # A new Worker that is not ready by then is given up; a setup may load models.


class WholeOutput(Process):
    """A process whose standard error is read with its output."""

    errors_too: ClassVar[bool] = True


class DevDeployment(Deployment):
    kind: ClassVar[type[Process]] = WholeOutput


def dev(
    runtime: Annotated[str, typer.Argument(metavar="RUNTIME", help="Your runtime, like my_avatar:avatar.")],
    setup: Annotated[str, typer.Option(help="Function that runs once per Worker process, like my_avatar:load.")] = "",
    capacity: Annotated[int, typer.Option(min=1, max=10_000, help="Most lives on the Worker.")] = 4,
    any_port: Annotated[
        bool, typer.Option("--any-port", help="Use free ports instead of 7400 to 7403 and 7410.")
    ] = False,
) -> None:
    """Run a deployment on this machine with a runtime that is reloaded when its source files change."""
    folder = folder_of(runtime)
    loaded = snapshot(folder)
    module = runtime.partition(":")[0].rpartition(".")[2]
    if wrong := syntax_error([path for path in loaded if path.stem == module]):
        raise BadSetting(f"{wrong}; correct it and start again")
    free_ones = any_port or not all(is_free(port) for port in PORTS)
    ports = (0, 0, 0, 0, 0) if free_ones else PORTS
    settings = UpSettings(
        workers=1,
        capacity=capacity,
        dispatch_ports=(ports[0], ports[1]),
        infer_port=ports[2],
        room_port=ports[3],
        metrics_port=ports[4],
        runtime=runtime,
        with_room=room_installed(),
        worker_options=(
            *("--log-level", "info", "--log-json", "--drain-s", str(DRAIN_S)),
            *(("--setup", setup) if setup else ()),
        ),
    )
    from dhsched.web.running import run_loop

    run_loop(run_dev(settings, folder, Sources(loaded)))


async def run_dev(settings: UpSettings, folder: Path, sources: Sources) -> None:
    """Run the deployment until SIGINT or SIGTERM."""
    stop = set_by_signals()
    colours = shows_colours(sys.stdout)

    def hear(name: str, line: bytes) -> None:
        for each in dev_lines.lines_of(name, line, colours=colours):
            say(each)

    async with sample(settings, hear, say=print_progress, restart=True, kind=DevDeployment) as made:
        print_what_runs(made, settings, folder)
        reloading = asyncio.create_task(Reloading(made, settings).follow(folder, sources))
        try:
            await first(stop, tasks=(reloading,))
            if reloading.done():
                reloading.result()
        finally:
            await cancel(reloading)


class Reloading:
    """The Worker that runs, and how it is replaced by one with the present code."""

    def __init__(self, made: Sample, settings: UpSettings) -> None:
        self._deployment = made.processes
        self._expected = made.restarts.expected
        self._settings = settings
        self._name = "worker-1"
        self._started = 1

    async def follow(self, folder: Path, sources: Sources) -> None:
        """Replace the Worker whenever the files under the folder have changed."""
        while True:
            await asyncio.sleep(POLL_S)
            changed = sources.changed(await asyncio.to_thread(snapshot, folder))
            if not changed:
                continue
            if wrong := syntax_error(changed):
                say(f"{wrong}; the Worker goes on with the code before")
                continue
            names = ", ".join(path.name for path in changed[:3]) + (" ..." if len(changed) > 3 else "")
            say(f"{names} changed: starting a Worker with the new code")
            try:
                await self.replace()
            except DhschedError as error:
                say(f"{error}; the Worker goes on with the code before")

    async def replace(self) -> None:
        """Start a Worker with the present code, wait until it is ready, and drain the one before. Raise DhschedError if
        the new Worker does not become ready; then it is gone."""
        self._started += 1
        name = f"worker-{self._started}"
        self._expected.add(name)  # A Worker that does not start is not started again.
        new = await start_worker(self._deployment, self._settings, self._started)
        try:
            await self._until_ready(new)
        except DhschedError:
            await self._deployment.remove(name)
            raise
        self._expected.discard(name)
        self._expected.add(self._name)
        old, self._name = self._deployment.workers[self._name], name
        say(f"{name} runs the new code, pid {new.pid}; {old.name} hands its lives over")
        old.signal(signal.SIGTERM)
        with contextlib.suppress(DhschedError):
            await old.ended(DRAIN_S + GRACE_S)
        await self._deployment.remove(old.name)

    async def _until_ready(self, new: Process) -> None:
        async with self._deployment.client() as client:

            async def ready() -> bool:
                if new.returncode is not None:
                    raise DhschedError(f"the new Worker ended with status {new.returncode}")
                return any([name_of(each.worker) == new.name async for each in client.workers(status="ready")])

            await until(ready, "the new Worker to be ready", START_S)


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), (line + "\n").encode(errors="replace"))


def print_what_runs(made: Sample, settings: UpSettings, folder: Path) -> None:
    say(f"{settings.runtime} runs. Ctrl-C stops everything.")
    say(f"It is reloaded when a file changes in\n  {folder}")
    if made.page:
        say(f"Open this in a browser:\n  {made.page}")
    say("Try, in another terminal:")
    for line in what_to_try(made, usual=settings.dispatch_ports == PORTS[:2]):
        say(f"  {line}")
    say("")
