"""Logs of a process: structured, on standard error, as text for people or JSON for machines.

Tracebacks are plain: a pretty traceback prints the locals of every frame, and with them the data of callers.
"""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


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
