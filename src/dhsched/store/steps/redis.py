"""The steps on a real store: one script, one round trip each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, Self

from dhsched.errors import StoreIncompatible
from dhsched.ownership import items
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.keys import SCHEMA, Keys
from dhsched.store.link.address import Address, parse_address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.records import Records
from dhsched.store.steps.api import Store
from dhsched.store.steps.replies import outcome, text
from dhsched.store.steps.scripts import Argument, Script, default_scripts, limit_values, plain, scripts_around
from dhsched.types import written

NO_CREATE = Create(digital_id="", fingerprint="")
IN_LUA = {"worker": "worker_id", "number": "num", "rev": "rev_seen"}
"""Arguments that a script calls otherwise, because the plain word names a function of its library."""


class Append(NamedTuple):
    """One row of `append_soon`: the arguments of append_input. `item` has no mark yet (`items.unmarked`): it gets one
    when it is sent, and another one should it be sent again."""

    live: str
    item: bytes
    producer: str = ""
    n: int = 0
    request: str = ""


class Release(NamedTuple):
    """One row of `release_soon`: the arguments of release_input."""

    live: str
    worker: str
    epoch: int
    pull_no: int
    after: int
    mark: bytes


class Ack(NamedTuple):
    """One row of `ack_soon`: the arguments of ack_input."""

    live: str
    worker: str
    epoch: int
    n: int
    saved: bytes | None
    mark: bytes


class RedisStore(Store):
    """One cell on a Valkey or Redis server."""

    def __init__(self, link: Link, *, cell: str, limits: Limits, scripts: Mapping[str, Script]) -> None:
        self.link = link
        self.keys = Keys(cell)
        self.limits = limits
        self._scripts = scripts
        self._limit_values = limit_values(limits)
        self.records = Records(link, cell)
        self._key = [self.keys.cell]
        self.new_mark: Callable[[], bytes] = partial(items.new_mark, Random())

    @classmethod
    async def open(
        cls,
        address: Address | str,
        *,
        cell: str = "main",
        limits: Limits = DEFAULT_LIMITS,
        settings: LinkSettings | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> Self:
        """Connect, load the scripts, and make sure that the cell's data is of our schema."""
        scripts = scripts or default_scripts()
        sources = {name: script.source for name, script in {**scripts_around(), **scripts}.items()}
        address = parse_address(address) if isinstance(address, str) else address
        link = await Link.open(address, scripts=sources, settings=settings, slot_key=Keys(cell).cell)
        store = cls(link, cell=cell, limits=limits, scripts=scripts)
        try:
            await store._check_schema()
        except BaseException:
            await link.close()
            raise
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.link.close()

    async def step(self, name: str, arguments: Mapping[str, Any]) -> Any:
        encoded = encode(name, arguments)
        script = self._scripts["place_create" if name == "place" and arguments.get("create") else name]
        argv = script.bind(self._limit_values, encoded)
        if script.each:
            row = [plain(encoded[field]) for field in script.each]
            return self.outcomes_of(await self.each_soon(script, argv, [row]))[0]
        reply = await self.link.run(script.name, [self.keys.cell], argv)
        self.now_ms = reply[1] or self.now_ms  # 0 where the step did not read the clock.
        return outcome(reply[0], reply[2:])

    # Steps that many lives share: one call, an outcome for each row, as if it were alone. The rows have been checked.
    # For whoever has many in flight these give futures, which `outcomes_of` reads: a task for each would cost more.

    def append_soon(
        self, rows: Sequence[Append], controller: str, pending_max: int | None = None
    ) -> asyncio.Future[Any]:
        """append_input. `controller` is who appends: where it holds the live's pull itself, it gets no hint.
        `pending_max` is for items that may not fill the whole queue."""
        script = self._scripts["append_input"]
        limits = self._limit_values if pending_max is None else {**self._limit_values, "pending_max": pending_max}
        mark = self.new_mark()
        marked = [(live, items.marked(item, mark), producer, n, request) for live, item, producer, n, request in rows]
        return self.each_soon(script, script.bind(limits, {"controller": controller}), marked)

    def release_soon(self, rows: Sequence[Release], credit: int) -> asyncio.Future[Any]:
        """release_input."""
        return self.each_soon(self._scripts["release_input"], [credit], rows)

    def ack_soon(self, rows: Sequence[Ack]) -> asyncio.Future[Any]:
        """ack_input."""
        script = self._scripts["ack_input"]
        encoded = [
            (live, worker, epoch, n, b"" if saved is None else b"=" + saved, mark)
            for live, worker, epoch, n, saved, mark in rows
        ]
        return self.each_soon(script, script.bind(self._limit_values, {}), encoded)

    def each_soon(
        self, script: Script, argv: list[Argument], rows: Sequence[Sequence[Argument]]
    ) -> asyncio.Future[Any]:
        for row in rows:
            argv.extend(row)
        return self.link.run(script.name, self._key, argv)

    def outcomes_of(self, reply: Any) -> list[Any]:
        """What such a call says of each row."""
        self.now_ms = reply[0] or self.now_ms
        return [outcome(one[0], one[1:]) for one in reply[1:]]

    async def _check_schema(self) -> None:
        """Refuse another version's data before anything is written; mark an empty cell as ours."""
        found = await self.link.call("HGET", self.keys.cell, "schema")
        if found is None:
            await self.link.call("HSETNX", self.keys.cell, "schema", SCHEMA)
            found = await self.link.call("HGET", self.keys.cell, "schema")
        if text(found) != str(SCHEMA):
            raise StoreIncompatible(
                f"cell {self.keys.cell_name} on {self.link.address.redacted()} holds data of schema {text(found)}, and"
                f" this version of dhsched works with schema {SCHEMA}; nothing was changed: use the version that wrote"
                " it, or another cell"
            )


def encode(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The model's arguments as the scripts take them."""
    values: dict[str, Any] = dict(arguments)
    if "candidates" in values:
        values["candidates"] = [written(each) for each in values["candidates"]]
    if name == "place":
        create = values.pop("create", None) or NO_CREATE
        values.update({field: getattr(create, field) for field in CREATE_FIELDS})
    elif name == "append_input":
        item = items.unmarked(values["kind"], values.pop("payload"), values.pop("boundary", False))
        values["item"] = items.marked(item, values.pop("mark", items.UNMARKED))
        values["controller"] = ""
    elif name == "ack_input":
        saved = values.get("saved")
        values["saved"] = b"" if saved is None else b"=" + saved
    for ours, theirs in IN_LUA.items():
        if ours in values:
            values[theirs] = values.pop(ours)
    return values


CREATE_FIELDS = ("digital_id", "fingerprint", "room", "metadata", "config", "priority", "immovable")
