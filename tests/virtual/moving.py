"""A slot that a cluster moves to another node: a command on a key that this node does not have is refused.

The key may be on the other node already, so the server cannot say that it does not exist. A script that meets such a
key is stopped there, and what it wrote before stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.virtual.keyspace import Keyspace

REPLY = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
WITHOUT_KEYS = frozenset({b"TIME", b"INFO", b"SPUBLISH", b"SCAN", b"MEMORY"})
ALL_KEYS = frozenset({b"DEL", b"EXISTS"})


class SlotIsMoved(Exception):
    """A command named a key that is not here."""


@contextmanager
def moving(keyspace: Keyspace) -> Iterator[None]:
    """Refuse commands on keys that are not here, until the context ends."""
    commands = dict(keyspace.commands)
    for name, command in commands.items():
        if name not in WITHOUT_KEYS:
            keyspace.commands[name] = guarded(keyspace, command, all_keys=name in ALL_KEYS)
    try:
        yield
    finally:
        keyspace.commands.update(commands)


def guarded(keyspace: Keyspace, command: Callable[..., Any], *, all_keys: bool) -> Callable[..., Any]:
    def run(*args: bytes) -> Any:
        for key in args if all_keys else args[:1]:
            if not keyspace.exists(key):
                raise SlotIsMoved(key)
        return command(*args)

    return run
