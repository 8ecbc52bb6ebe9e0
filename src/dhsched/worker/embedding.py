"""A Worker inside a program that has its own event loop.

async with Worker(avatar, pool="gpu", capacity=200) as worker:
    await worker.registered()
    await serve_something_else()
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, Unpack

from dhsched.errors import DhschedError
from dhsched.tasks import cancel, first
from dhsched.worker.exec import Exec
from dhsched.worker.main import Leaving, run_worker
from dhsched.worker.options import WorkerOptions, settings_of
from dhsched.worker.runtimes import Runtime
from dhsched.worker.setup import Setup


class Worker:
    """One Worker, from the beginning to the end of an `async with` block.

    The block is entered once `setup` is done; errors of the setup, of a device that is in use and of the settings are
    raised there. A block that is left normally drains the Worker like SIGTERM, for up to `drain_s`; one that is left by
    an exception or a cancellation stops the runtimes at once. If the Worker fails meanwhile, the block is cancelled,
    and the `async with` raises the Worker's error. Signals and logging are the program's.
    """

    def __init__(
        self, runtime: Runtime | Exec, *, setup: Setup | None = None, **options: Unpack[WorkerOptions]
    ) -> None:
        self._settings = settings_of(options)
        self._runtime = runtime
        self._setup = setup
        self._leaving = Leaving()
        self._worker_id: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._block: asyncio.Task[object] | None = None
        self._failed = False

    async def registered(self) -> str:
        """Wait until Dispatch has registered this Worker; return its WorkerID. Raise if the Worker ends before."""
        assert self._worker_id is not None, "enter the Worker with `async with` first"
        return await asyncio.shield(self._worker_id)

    def stop(self) -> None:
        """Begin to drain now. The end of the block waits for the end of the drain."""
        self._leaving.requested.set()

    async def __aenter__(self) -> Self:
        self._worker_id, self._block = asyncio.get_running_loop().create_future(), asyncio.current_task()
        set_up = asyncio.Event()
        self._task = asyncio.create_task(
            run_worker(
                self._settings,
                self._runtime,
                self._leaving,
                setup=self._setup,
                on_set_up=set_up.set,
                on_registered=self._on_registered,
                watched=True,
            )
        )
        try:
            await first(set_up, tasks=(self._task,))
        except asyncio.CancelledError:
            await cancel(self._task)
            raise
        if self._task.done():
            self._task.result()
        self._task.add_done_callback(self._on_end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None and self._block is not None
        self._leaving.requested.set()
        if self._failed and self._block.uncancel() == 0 and kind in (None, asyncio.CancelledError):
            self._task.result()
        if error is not None:
            self._leaving.at_once.set()
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            # Cancelled while it drained: stop what is left, then end. One more cancellation ends the wait.
            self._leaving.at_once.set()
            await asyncio.shield(self._task)
            raise

    def _on_registered(self, worker: str) -> None:
        if self._worker_id is not None and not self._worker_id.done():
            self._worker_id.set_result(worker)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """End the wait for the registration; cancel the block if the Worker failed before the block was left."""
        if self._worker_id is not None and not self._worker_id.done():
            self._worker_id.set_exception(DhschedError("the Worker has ended before it was registered"))
            self._worker_id.exception()  # Mark it as retrieved: nobody may be waiting for it.
        if not task.cancelled() and task.exception() is not None and not self._leaving.requested.is_set():
            assert self._block is not None
            self._failed = True
            self._block.cancel()
