"""Clients of a fleet, and how one is cut off."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from urllib.parse import urlsplit

from dhsched.client import Client
from tests.harness.cutting import Cutter, cutting
from tests.harness.fleet import Fleet


def cut_off(url: str, nth: int = 1) -> AbstractAsyncContextManager[Cutter]:
    """A proxy that hangs up in place of the nth piece of an answer on each connection."""
    server = urlsplit(url)
    return cutting(partial(asyncio.open_connection, server.hostname, server.port), nth)


def client_of(f: Fleet, *, deadline_s: float = 10.0) -> Client:
    """A client that knows all replicas."""
    return Client(f.dispatch, f.infer, deadline_s=deadline_s)
