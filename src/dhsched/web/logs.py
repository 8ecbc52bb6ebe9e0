"""Logs of a process: structured, on standard error, as text for people or JSON for machines.

Tracebacks are plain: a pretty traceback prints the locals of every frame, and with them the data of callers.
"""

from __future__ import annotations

import logging
import sys

import structlog
from aiohttp.http_exceptions import HttpProcessingError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def is_our_fault(record: logging.LogRecord) -> bool:
    """Return whether a line of aiohttp's server is about an error of ours.

    A head that cannot be parsed is its sender's fault. aiohttp logs each with a traceback and the bytes themselves, so
    anybody who reaches the port could fill the disk.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def configure_logging(*, level: str = "info", json: bool = False) -> None:
    """Send the logs of structlog and of the standard library to standard error, from `level` on."""
    render: structlog.typing.Processor
    if json:
        render = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    before: list[structlog.typing.Processor] = [structlog.processors.format_exc_info] if json else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *before,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=LEVELS[level], stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("aiohttp.server").addFilter(is_our_fault)
