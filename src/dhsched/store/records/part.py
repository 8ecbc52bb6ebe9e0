"""The base class of all parts of the records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dhsched.store.keys import Keys
from dhsched.store.link.link import Arg, Link
from dhsched.store.steps.scripts import join

NAMES_MAX = 500  # Records of one script, about a millisecond of the store's time; more take more scripts.


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

    def _call_all(self, *calls: tuple[str, str, str, *tuple[Arg, ...]]) -> asyncio.Future[list[Any]]:
        """Send several commands at once, each on a key `key:name`: (command, key, name, *arguments)."""
        call, prefix = self._link.call, self._prefix
        return asyncio.gather(*[call(command, f"{prefix}{key}:{name}", *rest) for command, key, name, *rest in calls])

    async def _read_fields(self, kind: str, names: Sequence[str], *fields: str) -> list[tuple[bytes | None, ...]]:
        """Return these fields of many records, `kind:name` each, a row per name. Each script reads up to NAMES_MAX
        records, because a call for every record costs its caller more than the reading. While the cell's slot is being
        moved, this waits and fails as every script does."""
        pages = [names[first : first + NAMES_MAX] for first in range(0, len(names), NAMES_MAX)]
        replies = await asyncio.gather(*(self._run("read_fields", kind, join(page), join(fields)) for page in pages))
        return [row for reply in replies for row in zip(*([iter(reply)] * len(fields)), strict=True)]

    def _run(
        self, script: str, *arguments: Arg, deadline_s: float | None = None, counted: bool = False
    ) -> asyncio.Future[Any]:
        """Run one of the scripts around the protocol. The reply of a `counted` one ends with its position."""
        read = self._link.read_counted if counted else None
        return self._link.run(script, [self._keys.cell], arguments, deadline_s=deadline_s, read=read)
