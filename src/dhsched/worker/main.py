"""A Worker process: one boot after another on one device, until a signal stops it.

SIGTERM (or Ctrl-C) requests a drain of this Worker from Dispatch, and the process exits when the Worker is empty or
after `drain_s`; a second signal exits at once. A boot that Dispatch answers with GONE stops every runtime, and the
process registers anew.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any

import aiohttp
import structlog

from dhsched.client.credentials import client_tls
from dhsched.client.http import open_session
from dhsched.errors import BadSetting
from dhsched.links.messages import Register
from dhsched.settings import key_of, nearest, settings_from
from dhsched.types import name_of
from dhsched.web.logs import configure_logging
from dhsched.web.running import run_loop
from dhsched.worker.agent import SessionAgent
from dhsched.worker.dispatch_link import Boot, DispatchLink
from dhsched.worker.exec import Exec, exec_runtime
from dhsched.worker.lock import DeviceLock
from dhsched.worker.pull_client import PullClient, dial_with
from dhsched.worker.runtimes import Runtime
from dhsched.worker.settings import WorkerSettings
from dhsched.worker.watchdog import Speaker, Watchdog, watching

log = structlog.get_logger(__name__)

ALONE_S = 3.0  # An empty Worker that no replica has answered for this long exits without waiting for the drain.
CUT_OVER_SHARE = 0.8  # Share of `drain_s` after which Dispatch cuts over what is left, while this Worker still runs it.
EXIT_S = 2.0  # An Exit that Dispatch does not answer for this long is not waited for: Dispatch expires the Worker.
LOOK_S = 0.1  # Between two checks whether a draining Worker is empty.


def run(
    runtime: Runtime | Exec,
    *,
    pool: str | None = None,
    capacity: int | None = None,
    dispatch: str | Sequence[str] | None = None,
    **more: Any,
) -> None:
    """Run a Worker on this machine until a signal stops it. `dispatch` is one URL, or several.

    `more` are further settings by name (settings.py). A setting that is not given comes from the environment, the
    configuration file (DHSCHED_CONFIG, or `config` here), or the default.
    """
    known = {"config", *(each.name for each in fields(WorkerSettings))}
    if unknown := next((name for name in more if name not in known), None):
        raise BadSetting(f"a Worker has no setting {unknown}{nearest(unknown, known)}")
    urls = dispatch if dispatch is None or isinstance(dispatch, str) else tuple(dispatch)
    settings = settings_from(WorkerSettings, {"pool": pool, "capacity": capacity, "dispatch": urls, **more})
    if not structlog.is_configured():
        configure_logging(level=settings.log_level, json=settings.log_json)
    run_here(settings, runtime)


def run_here(settings: WorkerSettings, runtime: Runtime | Exec) -> None:
    """Run a Worker like `run`, with complete settings."""
    run_loop(run_until_signalled(settings, runtime), runs_code_of_others=True)


async def run_until_signalled(settings: WorkerSettings, runtime: Runtime | Exec) -> None:
    leave = asyncio.Event()

    def asked_to_leave() -> None:
        if leave.is_set():
            # Runtimes may delay the shutdown without bound; `_exit` cannot be delayed.
            log.warning("asked to stop twice: exiting now")
            os._exit(1)
        log.info("asked to stop: draining", drain_s=settings.drain_s)
        leave.set()

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, asked_to_leave)
    with watching(settings.blocked_max_s, client_tls(settings.tls_ca)) as watchdog:
        await run_worker(settings, runtime, leave, watchdog)


async def run_worker(
    settings: WorkerSettings, runtime: Runtime | Exec, leave: asyncio.Event, watchdog: Watchdog | None = None
) -> None:
    """Be a Worker until `leave` is set and it is empty, or `drain_s` later. `watchdog` reports for a blocked loop."""
    name = settings.name or socket.gethostname().replace(" ", "-")[:64]
    settings = replace(settings, name=name, device=settings.device or name)
    with (
        DeviceLock(settings.device, settings.lock_folder) as lock,
        runtime_for(runtime, settings, lock) as run_one,
    ):
        # Without a limit on connections: a pull and a report must not wait for each other's.
        async with open_session(settings.dispatch, settings.tls_ca, connections_max=0) as http:
            while not leave.is_set():
                boot = OneBoot(settings, run_one, lock, http)
                if watchdog is not None:
                    watchdog.speaker = boot.speaker
                await boot.run(leave)


def runtime_for(runtime: Runtime | Exec, settings: WorkerSettings, lock: DeviceLock) -> AbstractContextManager[Runtime]:
    if isinstance(runtime, Exec):
        return exec_runtime(runtime.command, lock.fd, settings.exec_env)
    return nullcontext(runtime)


class OneBoot:
    """One WorkerID from its registration to its end."""

    def __init__(
        self, settings: WorkerSettings, runtime: Runtime, lock: DeviceLock, http: aiohttp.ClientSession
    ) -> None:
        self._settings = settings
        self._lock = lock
        self._pulls = PullClient(
            dial_with(http, lambda: self._pulls.token),
            lambda session: self._agent.over(session),
            lambda: self._link.answered_s,
        )
        self._agent = SessionAgent(
            runtime,
            capacity=settings.capacity,
            pulls=self._pulls,
            say_depart=lambda live, number, reason: self._link.depart(live, number, reason),
            say_prepared=lambda: self._link.report_soon(),
            teardown_s=settings.teardown_s,
        )
        # A machine that was given another name replaces nothing: its earlier boot is lost by its silence.
        last = lock.last_worker()
        replaced = last if name_of(last) == settings.name else ""
        self._boot = Boot(
            Register(
                name=settings.name,
                boot=uuid.uuid4().hex,
                pool=settings.pool,
                capacity=settings.capacity,
                labels=settings.labels,
                replaces=replaced,
            )
        )
        self._link = DispatchLink(
            http,
            settings.dispatch,
            self._boot,
            self._agent,
            on_registered=self._registered,
            on_controllers=self._pulls.use,
            key=key_of(settings),
        )

    async def run(self, leave: asyncio.Event) -> None:
        linked = asyncio.create_task(self._link.run())
        leaving = asyncio.create_task(leave.wait())
        try:
            await asyncio.wait((linked, leaving), return_when=asyncio.FIRST_COMPLETED)
            if linked.done():
                linked.result()
                log.warning("this boot is over: stopping every runtime, then registering anew")
            else:
                await self._drain(linked)
            await self._stop()
            if not linked.done():
                self._link.exit()
                await asyncio.wait((linked,), timeout=EXIT_S)
        finally:
            for task in (linked, leaving):
                task.cancel()
            await asyncio.gather(linked, leaving, return_exceptions=True)
            await self._pulls.close()

    def speaker(self) -> Speaker | None:
        """Return the identity that the watchdog reports with. Its thread calls this: only read here, and never wait."""
        boot = self._boot
        return Speaker(boot.worker, boot.token, self._link.urls) if boot.token else None

    async def _drain(self, linked: asyncio.Task[None]) -> None:
        """Request a drain, and wait until every live has moved away or `drain_s` is over."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.drain_s
        self._link.drain(self._settings.drain_s * CUT_OVER_SHARE)
        while self._boot.worker and not self._drained() and not linked.done():
            if loop.time() >= give_up:
                log.warning("drain_s is over: stopping the runtimes that are left", runtimes=self._agent.runtimes)
                return
            await asyncio.sleep(LOOK_S)

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
        self._lock.remember(worker)
        self._agent.worker = worker
        log.info("registered", worker=worker, pool=self._settings.pool, capacity=self._settings.capacity)
