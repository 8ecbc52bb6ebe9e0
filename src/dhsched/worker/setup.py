"""`setup`: the function that a runtime's process calls once, before its Worker registers: load a model, warm it up.

A Worker that has not registered is given no lives, so `setup` may take as long as it needs. If it fails, the process
ends with the reason, and whatever started the process decides what to do.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from dhsched.errors import SetupFailed
from dhsched.worker.reasons import reason_of
from dhsched.worker.watchdog import places

log = structlog.get_logger(__name__)

Setup = Callable[[], Any]
"""A function or a coroutine function without arguments. Sessions get what it returns as `session.shared`."""
SLOW_S = 30.0  # A setup that is not done after this long is logged, with its place, and again after each such time.


async def set_up(setup: Setup | None) -> Any:
    """Return what `setup` returns. A plain function is called on the loop's thread, where the runtimes run too."""
    if setup is None:
        return None
    name = getattr(setup, "__qualname__", repr(setup))
    with logged_while_slow(name):
        try:
            made = setup()
            return await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise SetupFailed(f"setup {name} failed, and the Worker has not registered: {reason_of(error)}") from error


@contextlib.contextmanager
def logged_while_slow(name: str) -> Iterator[None]:
    """Log every SLOW_S that the block is not done, and where this thread is: the block may never return to the loop."""
    done, began, thread = threading.Event(), time.monotonic(), threading.get_ident()

    def watch() -> None:
        while not done.wait(SLOW_S):
            place = places(sys._current_frames().get(thread))
            log.warning("setup is not done yet", setup=name, seconds=round(time.monotonic() - began), place=place)

    threading.Thread(target=watch, name="setup", daemon=True).start()
    try:
        yield
    finally:
        done.set()
