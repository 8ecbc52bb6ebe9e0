"""What the conftests of tests over real servers share: the product's event loop, an end for tests that hang, plain
logs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
import uvloop


def loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def end_from_a_thread(items: list[pytest.Item], here: Path) -> None:
    """A test of this folder that hangs is ended from a thread, with its process: uvloop drops what a signal's handler
    raises."""
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(method="thread"))


def log_plainly() -> None:
    """Log to standard error, for replicas that run in the test's own process must not write into what a command prints.
    Tracebacks are plain, as in the product: the default draws every frame's locals, which holds up the event loop, and
    with it every deadline in the test, for as long as a busy machine needs for that."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
