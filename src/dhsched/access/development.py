"""The development key: an admin key for the processes of one user on one machine, found without configuration.

A replica on loopback whose cell has no admin key makes one and writes it into this user's key file (key_file.py), under
its own address; further replicas of the cell find it there. The verbs, the client, Workers and rooms of the same user
look up the key by the address that they call. This gives the user no new rights: a user who runs a replica can reach
the store and do anything anyway. Where an operator has made an admin key, no development key is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from dhsched.access.api_keys import id_of, matches
from dhsched.access.key_file import KeyFile
from dhsched.access.ring import KeyRing
from dhsched.errors import DhschedError
from dhsched.settings import ReplicaSettings, is_loopback

log = structlog.get_logger(__name__)

NOTE = "development key"
Say = Callable[[str], None]


async def development_key(settings: ReplicaSettings, ring: KeyRing) -> str:
    """Return this cell's development key from the key file, or a new one; empty if the cell should have none."""
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
    """Create a development key, write it into the key file and return it. If the file cannot be written, revoke the
    key and return an empty string: nobody could use it."""
    text, record = await ring.create(role="admin", note=NOTE)
    try:
        KeyFile().keep(text)
    except DhschedError as error:
        await ring.revoke(record.id)
        log.warning("no development key is made; set DHSCHED_KEY for the verbs", reason=str(error))
        return ""
    return text


@contextmanager
def noted(key: str, say: Say | None) -> Iterator[Say]:
    """Yield a function to call with the listener's address; the key file has the key under it until the block ends."""
    known: dict[str, str] = {}

    def listening(url: str) -> None:
        if key:
            # Before the address is announced: a caller that reads it must find the key.
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
