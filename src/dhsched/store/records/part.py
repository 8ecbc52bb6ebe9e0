"""The base class of all parts of the records."""

from __future__ import annotations

import asyncio
from typing import Any

from dhsched.store.keys import Keys
from dhsched.store.link.link import Arg, Link


class Part:
    """Some records of a cell, over a link that all parts share."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._prefix = keys.prefix

    def _call(self, command: str, key: str, name: str | int = "", *arguments: Arg) -> asyncio.Future[Any]:
        """Send one command on the key `key:name` of the cell, or without a name on the single key `key`."""
        key = f"{self._prefix}{key}:{name}" if name != "" else self._prefix + key  # As Keys.of has it.
        return self._link.call(command, key, *arguments)

    def _run(
        self, script: str, *arguments: Arg, deadline_s: float | None = None, counted: bool = False
    ) -> asyncio.Future[Any]:
        """Run one of the scripts around the protocol. The reply of a `counted` one ends with its position."""
        read = self._link.read_counted if counted else None
        return self._link.run(script, [self._keys.cell], arguments, deadline_s=deadline_s, read=read)
