"""The trace of a request: the header `traceparent` (W3C Trace Context), as a caller sends it.

A header that is not as the standard has it is treated as if it were not there: a trace is never a reason to refuse.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import NamedTuple

HEADER = "traceparent"
LENGTH = 55  # Characters of version 00: 2, 32, 16 and 2 digits, and three hyphens.
SHAPE = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

GIVEN: ContextVar[str] = ContextVar("traceparent", default="")
"""The header of the request that the current task serves, unchecked; empty where nobody traces."""


class Parent(NamedTuple):
    """The span of a caller that the spans of its request belong to."""

    trace_id: int
    span_id: int
    sampled: bool


def traceparent_of(trace: bytes) -> str:
    """Return the header that names the trace and the span of an item (ownership/items.py)."""
    return f"00-{trace[:16].hex()}-{trace[16:24].hex()}-{trace[24]:02x}"


def read_traceparent(text: str) -> Parent | None:
    """Return the caller's span; None if the text names none."""
    if (found := SHAPE.fullmatch(text)) is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return Parent(trace_id, span_id, bool(flags & 1)) if trace_id and span_id else None
