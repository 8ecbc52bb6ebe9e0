"""Logs of a process: structured, on standard error, as text for people or JSON for machines.

Tracebacks are plain: a pretty traceback prints the locals of every frame, and with them the data of callers.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

import structlog
from aiohttp.http_exceptions import HttpProcessingError

from dhsched.web.traceparent import GIVEN, read_traceparent

Keep = Callable[[str, str], None]
KEEP: ContextVar[Keep | None] = ContextVar("keep", default=None)
"""What is called with level and text of each line that the current task logs, beside what is written to standard error.
A Worker sets this for each runtime, so that the line reaches the log of its live."""
NOT_TOLD = frozenset({"event", "level", "timestamp", "exc_info", "exception", "stack_info", "live", "epoch", "device"})
"""Fields of a line that are not in the text of a kept line: it has them in another form, or its reader knows them."""

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def is_our_fault(record: logging.LogRecord) -> bool:
    """Return whether a line of aiohttp's server is about an error of ours.

    A head that cannot be parsed is its sender's fault. aiohttp logs each with a traceback and the bytes themselves, so
    anybody who reaches the port could fill the disk.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def with_context(record: logging.LogRecord) -> bool:
    """Give a line of the standard library the context that structlog's lines have, such as a runtime's live."""
    bound = structlog.contextvars.get_contextvars()
    record.context = "".join(f" {name}={value}" for name, value in sorted(bound.items()))
    return True


@contextmanager
def not_kept() -> Iterator[None]:
    """Let lines that are logged in the block go to standard error only."""
    before = KEEP.set(None)
    try:
        yield
    finally:
        KEEP.reset(before)


def add_trace(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Give a line that is logged for a traced request the id of its trace, as a processor of structlog."""
    if (given := GIVEN.get()) and (parent := read_traceparent(given)) is not None:
        line["trace_id"] = f"{parent.trace_id:032x}"
    return line


def keep_line(logger: object, method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Pass a line of structlog on to KEEP, as a processor that changes nothing."""
    keep = KEEP.get()
    if keep is not None:
        told = structlog.processors.format_exc_info(logger, method, dict(line))
        values = [f"{name}={value}" for name, value in told.items() if name not in NOT_TOLD]
        parts = [" ".join([str(told.get("event", "")), *values]), str(told.get("exception", ""))]
        keep(str(line.get("level", method)), "\n".join(filter(None, parts)))
    return line


class KeepHandler(logging.Handler):
    """Passes lines of the standard library's logging on to KEEP."""

    def emit(self, record: logging.LogRecord) -> None:
        keep = KEEP.get()
        if keep is not None:
            keep(record.levelname.lower(), self.format(record))


def shows_colours(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can and should show colours (NO_COLOR, TERM=dumb)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def configure_logging(*, level: str = "info", json: bool = False) -> None:
    """Send the logs of structlog and of the standard library to standard error, from `level` on."""
    render: structlog.typing.Processor
    if json:
        render = structlog.processors.JSONRenderer()
    else:
        colours = shows_colours(sys.stderr)
        render = structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
    before: list[structlog.typing.Processor] = [structlog.processors.format_exc_info] if json else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            keep_line,
            *before,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(with_context)
    keeping = KeepHandler()
    keeping.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(
        level=LEVELS[level],
        handlers=[handler, keeping],
        format="%(asctime)s %(levelname)s %(name)s %(message)s%(context)s",
    )
    logging.getLogger("aiohttp.server").addFilter(is_our_fault)
