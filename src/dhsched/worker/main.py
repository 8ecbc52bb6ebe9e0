"""A Worker process: one boot after another on one device, until a signal stops it.

SIGTERM (or Ctrl-C) requests a drain of this Worker from Dispatch, and the process exits when the Worker is empty or
after `drain_s`; a second signal exits at once. A boot that Dispatch answers with GONE stops every runtime, and the
process registers anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Unpack

import aiohttp
import structlog

from dhsched import pauses
from dhsched.cells.workers import Registration
from dhsched.client.credentials import client_tls
from dhsched.client.http import open_session
from dhsched.links.messages import Register
from dhsched.settings import key_of
from dhsched.tasks import cancel, first
from dhsched.web.logs import configure_logging
from dhsched.web.running import run_loop
from dhsched.worker.agent import SessionAgent
from dhsched.worker.child_session import PythonChildSession, command_of
from dhsched.worker.devices import Devices, locked
from dhsched.worker.dispatch_link import Boot, DispatchLink
from dhsched.worker.exec import Exec, child_runtime, exec_runtime
from dhsched.worker.metrics import WorkerStatus, serving_metrics
from dhsched.worker.options import WorkerOptions, settings_of
from dhsched.worker.pull_client import PullClient
from dhsched.worker.pull_dial import dial_with
from dhsched.worker.runtimes import Runtime
from dhsched.worker.settings import WorkerSettings
from dhsched.worker.setup import Setup, set_up
from dhsched.worker.watchdog import Speaker, Watchdog, watching

log = structlog.get_logger(__name__)

ALONE_S = 3.0  # An empty Worker that no replica has answered for this long exits without waiting for the drain.
CUT_OVER_SHARE = 0.8  # Share of `drain_s` after which Dispatch cuts over what is left, while this Worker still runs it.
EXIT_S = 2.0  # An Exit that Dispatch does not answer for this long is not waited for: Dispatch expires the Worker.
POLL_S = 0.1  # Between two checks whether a draining Worker is empty.


Wrap = Callable[[Runtime], Runtime]


@dataclass(frozen=True, slots=True)
class Leaving:
    """Requests to a Worker to end: `requested` drains it, `at_once` stops what the drain has not moved yet."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: asyncio.Event = field(default_factory=asyncio.Event)


def run(runtime: Runtime | Exec, *, setup: Setup | None = None, **options: Unpack[WorkerOptions]) -> None:
    """Run a Worker on this machine until a signal stops it.

    `setup` is called once, before the Worker registers; sessions get what it returns as `session.shared`. `options` are
    settings by name (settings.py): `pool` and `capacity` at least, here, in the environment or in a file.
    """
    settings = settings_of(options)
    if not structlog.is_configured():
        configure_logging(level=settings.log_level, json=settings.log_json)
    run_here(settings, runtime, setup)


def run_here(
    settings: WorkerSettings, runtime: Runtime | Exec, setup: Setup | None = None, wrap: Wrap | None = None
) -> None:
    """Run a Worker like `run`, with complete settings."""
    run_loop(run_until_signalled(settings, runtime, setup, wrap), runs_code_of_others=True)


async def run_until_signalled(
    settings: WorkerSettings, runtime: Runtime | Exec, setup: Setup | None, wrap: Wrap | None
) -> None:
    leaving = Leaving()

    def asked_to_leave() -> None:
        if leaving.requested.is_set():
            # Runtimes may delay the shutdown without bound; `_exit` cannot be delayed.
            log.warning("asked to stop twice: exiting now")
            os._exit(1)
        log.info("asked to stop: draining", drain_s=settings.drain_s)
        leaving.requested.set()

    def on_set_up() -> None:
        # Until now a signal ended the process: there was nothing to drain.
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, asked_to_leave)
        if setup is not None:
            pauses.freeze()  # What it has loaded stays, and no live has begun yet.

    await run_worker(settings, runtime, leaving, setup=setup, wrap=wrap, on_set_up=on_set_up, watched=True)


async def run_worker(
    settings: WorkerSettings,
    runtime: Runtime | Exec,
    leaving: Leaving,
    *,
    setup: Setup | None = None,
    wrap: Wrap | None = None,
    on_set_up: Callable[[], None] | None = None,
    on_registered: Callable[[str], None] | None = None,
    watched: bool = False,
) -> None:
    """Be a Worker until `leaving` is requested and it is empty, or `drain_s` later.

    `wrap` is called with what runs one live, a child process included, and returns what runs it instead. `on_set_up` is
    called when the setup is done, `on_registered` with the WorkerID of each boot. With `watched`, a watchdog thread
    reports for a blocked loop.
    """
    name = settings.name or socket.gethostname().replace(" ", "-")[:64]
    named_devices = bool(settings.device)
    settings = replace(settings, name=name, device=settings.device or name)
    async with contextlib.AsyncExitStack() as stack:
        locking = locked(settings.devices, settings.lock_folder, settings.device_crashes_max)
        devices = await stack.enter_async_context(locking)
        run_one = stack.enter_context(runtime_for(runtime, setup, settings, devices))
        status = WorkerStatus(devices)
        if settings.metrics_port:
            await stack.enter_async_context(serving_metrics(settings, status))
        shared = await set_up(None if settings.process_per_live else setup)
        if on_set_up is not None:
            on_set_up()
        devices.share = ceil(settings.capacity / len(settings.devices))
        if wrap is not None:
            run_one = wrap(run_one)
        watchdog: Watchdog | None = None
        if watched:
            watchdog = stack.enter_context(watching(settings.blocked_max_s, client_tls(settings.tls_ca)))
        # Without a limit on connections: a pull and a report must not wait for each other's.
        http = await stack.enter_async_context(open_session(settings.dispatch, settings.tls_ca, connections_max=0))
        goes_to, moved = "", False
        while not leaving.requested.is_set():
            boot = OneBoot(
                settings,
                run_one,
                devices,
                http,
                shared=shared,
                on_registered=on_registered,
                named_devices=named_devices,
                goes_to=goes_to,
                moved=moved,
            )
            status.boot = boot
            if watchdog is not None:
                watchdog.speaker = boot.speaker
            goes_to = await boot.run(leaving)
            moved = moved or bool(goes_to)


def runtime_for(
    runtime: Runtime | Exec, setup: Setup | None, settings: WorkerSettings, devices: Devices
) -> AbstractContextManager[Runtime]:
    if isinstance(runtime, Exec):
        return exec_runtime(runtime.command, devices.lock_fds, settings.exec_env)
    if settings.process_per_live:
        options = ("--log-level", settings.log_level, *(["--log-json"] if settings.log_json else []))
        words = command_of(runtime, setup, *options)
        kind, close_s = PythonChildSession, settings.teardown_s
        return child_runtime(words, devices.lock_fds, settings.exec_env, kind=kind, close_s=close_s)
    return nullcontext(runtime)


class OneBoot:
    """One WorkerID from its registration to its end. With `goes_to` the boot before has left its cell for that one;
    with `moved` an earlier one has, so the cell of the settings does not count any more."""

    def __init__(
        self,
        settings: WorkerSettings,
        runtime: Runtime,
        devices: Devices,
        http: aiohttp.ClientSession,
        *,
        shared: Any = None,
        on_registered: Callable[[str], None] | None = None,
        named_devices: bool = False,
        goes_to: str = "",
        moved: bool = False,
    ) -> None:
        self._settings = settings
        self._devices = devices
        self._on_registered = on_registered
        self._pulls = PullClient(
            dial_with(http, lambda: self._pulls.token, lambda: self._boot.cell or ""),
            lambda session: self._agent.over(session),
            lambda: self._link.answered_s,
            settings.log_lines_per_s,
        )
        self._agent = SessionAgent(
            runtime,
            capacity=settings.capacity,
            pulls=self._pulls,
            say_depart=lambda live, number, reason: self._link.depart(live, number, reason),
            say_prepared=lambda: self._link.report_soon(),
            teardown_s=settings.teardown_s,
            shared=shared,
            using=devices.used_by,
        )
        self._boot = Boot(
            Register(
                name=settings.name,
                boot=uuid.uuid4().hex,
                pool=settings.pool,
                capacity=settings.capacity,
                labels=settings.labels,
            ),
            # As if it had been there: if that cell is away, this boot waits for it a while and then chooses another.
            last=Registration(goes_to, "") if goes_to else devices.last_boot(settings.name),
            wanted_cell="" if moved else settings.cell,
        )
        self._link = DispatchLink(
            http,
            settings.dispatch,
            self._boot,
            self._agent,
            on_registered=self._registered,
            on_controllers=self._pulls.use,
            key=key_of(settings),
            devices=devices.states if named_devices else None,
        )
        devices.on_change = self._link.tell_devices

    async def run(self, leave: Leaving) -> str:
        """Run the boot to its end; return the cell that the next boot registers in, if Dispatch has named one."""
        linked = asyncio.create_task(self._link.run())
        goes_to = ""
        try:
            while not (linked.done() or leave.requested.is_set() or goes_to):
                await first(leave.requested, self._link.going, tasks=(linked,))
                if self._link.going.is_set() and not leave.requested.is_set():
                    goes_to = await self._emptied_for(linked, leave.requested)
            if linked.done():
                linked.result()
                log.warning("this boot is over: stopping every runtime, then registering anew")
            elif goes_to:
                log.info("empty: leaving this cell", worker=self.worker_id, cell=goes_to)
            else:
                await self._drain(linked, leave.at_once)
            await self._stop()
            if not linked.done():
                self._link.exit()
                await asyncio.wait((linked,), timeout=EXIT_S)
        finally:
            await cancel(linked)
            await self._pulls.close()
        return goes_to

    @property
    def worker_id(self) -> str:
        return self._agent.worker

    @property
    def states(self) -> Counter[str]:
        return self._agent.states

    @property
    def silent_s(self) -> float:
        return self._link.silent_s

    @property
    def controllers(self) -> int:
        return self._pulls.connected

    def speaker(self) -> Speaker | None:
        """Return the identity that the watchdog reports with. Its thread calls this: only read here, and never wait."""
        boot = self._boot
        return Speaker(boot.worker, boot.token, self._link.urls) if boot.token else None

    async def _drain(self, linked: asyncio.Task[None], at_once: asyncio.Event) -> None:
        """Request a drain, and wait until every live has moved away, `drain_s` is over or `at_once` is set."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.drain_s
        self._link.drain(self._settings.drain_s * CUT_OVER_SHARE)
        while self._boot.worker and not self._drained() and not linked.done() and not at_once.is_set():
            if loop.time() >= give_up:
                log.warning("drain_s is over: stopping the runtimes that are left", runtimes=self._agent.runtimes)
                return
            await asyncio.sleep(POLL_S)

    async def _emptied_for(self, linked: asyncio.Task[None], leave: asyncio.Event) -> str:
        """Wait until every live has moved away; return the cell to go to then. Empty if that was cancelled, or if the
        boot ends otherwise."""
        while self._link.going.is_set() and not linked.done() and not leave.is_set():
            if not self._agent.runtimes and not self._agent.rules.table:
                return self._link.goes_to
            await asyncio.sleep(POLL_S)
        return ""

    def _drained(self) -> bool:
        """Return whether nothing runs here and nothing will: Dispatch confirmed it, or no replica has answered."""
        if self._agent.runtimes:
            return False
        told = self._link.mode == "draining" and not self._agent.rules.table
        return told or self._link.silent_s >= ALONE_S

    async def _stop(self) -> None:
        self._agent.stop_all()
        await self._agent.stopped()

    def _registered(self, worker: str, token: str) -> None:
        self._pulls.token = token
        if self._agent.worker:
            return
        # Store the id first: if the process is killed now, the next boot must know what it replaces.
        self._devices.remember(Registration(self._boot.cell or "", worker))
        self._agent.worker = worker
        if self._on_registered is not None:
            self._on_registered(worker)
        log.info("registered", worker=worker, pool=self._settings.pool, capacity=self._settings.capacity)
