"""The API keys of a virtual run whose seed has access with keys. They are in the store before anybody starts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Any, NamedTuple, Self

import msgspec
from jwt import api_jwt

from dhsched.access.api_keys import ApiKey, new_key
from tests.virtual.store import StoreServer


class RunKeys(NamedTuple):
    """The texts of the keys, and the setting `access` of every role; without keys the texts are empty."""

    access: str = "open"
    admin: str = ""
    worker: str = ""
    room: str = ""


class VirtualDate(datetime):
    """A date that reads the time of the run: `datetime` reads the machine's clock by itself."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)


@contextmanager
def dated() -> Iterator[None]:
    """Let tokens expire in the time of the run."""
    api_jwt.datetime = VirtualDate  # type: ignore[attr-defined]
    try:
        yield
    finally:
        api_jwt.datetime = datetime  # type: ignore[attr-defined]


def make_keys(store: StoreServer) -> RunKeys:
    """Write one key of each role into a store, and return their texts."""
    return RunKeys("keys", put(store, role="admin"), put(store, role="worker"), put(store, role="room"))


def put(store: StoreServer, **given: Any) -> str:
    ring, keyspace = store.keys.of("keys").encode(), store.keyspace
    made = new_key()
    record = ApiKey(id=made.id, hash=made.hash, created_at_ms=keyspace.now_ms(), **given)
    keyspace.hset(ring, f"api:{record.id}".encode(), msgspec.json.encode(record))
    keyspace.run(b"HINCRBY", [ring, b"rev", b"1"])
    return made.text
