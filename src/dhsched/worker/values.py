"""Values as the store holds them: configuration and metadata are JSON objects, a state is any JSON value or bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from dhsched.types import STATE_IS_BYTES, STATE_IS_JSON

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MARK = b"\0"
JSON, BYTES = STATE_IS_JSON, STATE_IS_BYTES
"""Marks of a stored state. Bytes are stored as they are, JSON after JSON; bytes that begin with MARK, after BYTES."""


def object_of(raw: bytes) -> dict[str, Any]:
    """Decode a configuration or metadata; return an empty dict if `raw` is empty or is not a JSON object."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    except UNREADABLE:
        return {}


def state_of(raw: bytes) -> Any:
    """Decode a stored state; return an empty dict if nothing was saved."""
    if raw.startswith(JSON):
        try:
            return msgspec.json.decode(raw[len(JSON) :])
        except UNREADABLE:
            return raw
    if raw.startswith(BYTES):
        return raw[len(BYTES) :]
    return raw or {}


def raw_state(state: Any) -> bytes:
    """Encode a state for the store. Raise TypeError or ValueError for a value that JSON cannot express."""
    if isinstance(state, bytes):
        return BYTES + state if state.startswith(MARK) or not state else state
    return JSON + msgspec.json.encode(state)
