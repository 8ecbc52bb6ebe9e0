"""The development key: an admin's key for what one user runs on one machine, which nobody has to hand on.

A replica on loopback whose cell has no admin key makes one and writes it into this user's key file (key_file.py), under
its own address; further replicas of the cell find it there. The verbs, the client, Workers and rooms of the same user
look there by the address that they call. Nobody gains by it: who runs a replica reaches the store, and can do anything
anyway. Where an operator has made an admin key, none is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog

from dhsched.access.api_keys import id_of, matches
from dhsched.access.key_file import KeyFile
from dhsched.access.ring import KeyRing
from dhsched.errors import DhschedError
from dhsched.settings import is_loopback

log = structlog.get_logger(__name__)

NOTE = "development key"
Say = Callable[[str], None]


class Listening(Protocol):
    """What is needed of a role's settings."""

    @property
    def access(self) -> str:
        """`keys` or `open`."""

    @property
    def host(self) -> str:
        """The address on which it listens."""


async def development_key(settings: Listening, ring: KeyRing) -> str:
    """The key of this cell that is in the key file, or a new one; empty where there should be none."""
    if settings.access != "keys" or not is_loopback(settings.host):
        return ""
    for text in KeyFile().kept():
        record = ring.api_keys.get(id_of(text))
        if record is not None and record.role == "admin" and matches(text, record):
            return text
    if any(key.role == "admin" and key.note != NOTE for key in ring.api_keys.values()):
        return ""
    return await make_development_key(ring)


async def make_development_key(ring: KeyRing) -> str:
    """A new one, kept; empty if it cannot be, because then nobody could ever show it."""
    text, record = await ring.create(role="admin", note=NOTE)
    try:
        KeyFile().keep(text)
    except DhschedError as error:
        await ring.revoke(record.id)
        log.warning("no development key is made, so verbs need DHSCHED_KEY", reason=str(error))
        return ""
    return text


@contextmanager
def noted(key: str, say: Say | None) -> Iterator[Say]:
    """What to call with the listener's address: the key is found under it from then on, until the end."""
    known: dict[str, str] = {}

    def listening(url: str) -> None:
        if key:
            # Before anybody is told the address: who calls it then finds the key.
            with said_if_unwritable():
                KeyFile().put({url: key})
                known[url] = key
        if say is not None:
            say(url)

    try:
        yield listening
    finally:
        if known:
            with said_if_unwritable():
                KeyFile().drop(known)


@contextmanager
def said_if_unwritable() -> Iterator[None]:
    try:
        yield
    except DhschedError as error:
        log.warning("the key file is not up to date", reason=str(error))
