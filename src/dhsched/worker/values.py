"""Configuration, metadata and state as values, and as the bytes that lie in the store. Pure.

Configuration and metadata are JSON objects. A state is any JSON value, or bytes, and comes back as what it was: bytes
lie in the store as they are, and JSON behind a mark. Bytes that begin like a mark have one of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec

MARK = b"\0"
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
JSON, BYTES = MARK + b"j", MARK + b"b"


def object_of(raw: bytes) -> dict[str, Any]:
    """A configuration or metadata; empty where nothing was given, or what was given is no JSON object."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    except UNREADABLE:
        return {}


def state_of(raw: bytes) -> Any:
    """The state that lies in the store as `raw`; an empty object where nothing was saved."""
    if raw.startswith(JSON):
        try:
            return msgspec.json.decode(raw[len(JSON) :])
        except UNREADABLE:
            return raw
    if raw.startswith(BYTES):
        return raw[len(BYTES) :]
    return raw or {}


def raw_state(state: Any) -> bytes:
    """How a state lies in the store. Raises TypeError or ValueError for what JSON does not have."""
    if isinstance(state, bytes):
        return BYTES + state if state.startswith(MARK) or not state else state
    return JSON + msgspec.json.encode(state)
