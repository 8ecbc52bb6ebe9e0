"""The steps on a real store: each is one script and one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, Self

from dhsched.ownership import items
from dhsched.ownership.journal import Change, packed
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.homes import Homes
from dhsched.store.keys import SCHEMA, Keys
from dhsched.store.link.address import Address, parse_address
from dhsched.store.link.greeting import Entry
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.records import Records
from dhsched.store.steps.api import Store
from dhsched.store.steps.scripts import (
    IN_LUA,
    SETTLING,
    Argument,
    Script,
    default_scripts,
    limit_values,
    plain,
    scripts_around,
)
from dhsched.types import written

NO_CREATE = Create(digital_id="", fingerprint="")


class Append(NamedTuple):
    """One row of `append_soon`: the arguments of append_input. `item` has no mark yet (`items.unmarked`): each sending
    gives it a new one."""

    live: str
    item: bytes
    producer: str = ""
    n: int = 0
    request: str = ""
    through: bytes = b""  # A `Through`, as text; empty for none.


class Release(NamedTuple):
    """One row of `release_soon`: the arguments of release_input."""

    live: str
    pull: bytes  # A `Through`, as text.


class Ack(NamedTuple):
    """One row of `ack_soon`: the arguments of ack_input."""

    live: str
    worker: str
    epoch: int
    n: int
    saved: bytes | None
    mark: bytes
    journal: Change | None = None


class Emit(NamedTuple):
    """One row of `emit_soon`: the arguments of emit."""

    live: str
    worker: str
    epoch: int
    n: int
    name: str
    data: bytes
    told: int


class RedisStore(Store):
    """One cell on a Valkey or Redis server."""

    def __init__(
        self, link: Link, *, cell: str, limits: Limits, scripts: Mapping[str, Script], homes: Homes | None = None
    ) -> None:
        self.link = link
        self.homes = homes or Homes(cell)
        self.keys = Keys(cell)
        self.limits = limits
        self._scripts = scripts
        self._limit_values = limit_values(limits)
        self.records = Records(link, cell)
        self._key = [self.keys.cell]
        self._replies = self.homes.reader
        link.read_counted = self._replies.changed
        self._ack_limits = scripts["ack_input"].bind(self._limit_values, {})
        self._emit_limits = scripts["emit"].bind(self._limit_values, {})
        self._look_limits = scripts["look"].bind(self._limit_values, {})
        self._append_limits: dict[tuple[str, int, int | None], list[Argument]] = {}
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
        entry: Entry | None = None,
    ) -> Self:
        """Connect, load the scripts, and enter. Raise StoreIncompatible if the cell's data is of another schema.

        `entry` replaces the entering, for tests that begin no home.
        """
        scripts = scripts or default_scripts()
        sources = {name: script.source for name, script in {**scripts_around(), **scripts}.items()}
        address = parse_address(address) if isinstance(address, str) else address
        homes = Homes(cell)
        link = await Link.open(
            address,
            scripts=sources,
            settings=settings,
            slot_key=Keys(cell).cell,
            entry=entry or homes,
            settle=SETTLING,
        )
        return cls(link, cell=cell, limits=limits, scripts=scripts, homes=homes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.link.close()

    @property
    def now_ms(self) -> int:
        """Return the store's time at the latest answer."""
        return self._replies.now_ms

    def step(self, step: str, /, **arguments: Any) -> asyncio.Future[Any]:
        script = self._scripts["place_create" if step == "place" and arguments["create"] else step]
        encode(step, arguments)
        argv = script.bind(self._limit_values, arguments)
        if not script.each:
            read = self._replies.entered if step == "enter" else self._replies.outcome
            return self.link.run(script.name, self._key, argv, read=read)
        argv += [plain(arguments[field]) for field in script.each]
        many = {"append_input": self._replies.appended, "look": self._replies.looked}.get(step, self._replies.outcomes)
        return self.link.run(script.name, self._key, argv, read=lambda reply: many(reply)[0])

    # Calls that many lives share: one script, an outcome for each row, as if the row were alone. The rows have been
    # checked. The future gets the list of outcomes.

    def append_soon(
        self, rows: Sequence[Append], controller: str, credit: int = 0, pending_max: int | None = None
    ) -> asyncio.Future[Any]:
        """Append rows (append_input). `controller` is the appender: if it holds the live's pull itself, it gets no
        hint. `credit` is that of the pulls that rows go through to. `pending_max` is a lower limit, for items that may
        not fill the whole queue."""
        if (limits := self._append_limits.get((controller, credit, pending_max))) is None:
            own = {} if pending_max is None else {"pending_max": pending_max}
            given = {"controller": controller, "credit": credit}
            limits = self._scripts["append_input"].bind({**self._limit_values, **own}, given)
            self._append_limits[controller, credit, pending_max] = limits
        argv, sources = [*limits], [source(producer, n, request) for _, _, producer, n, request, _ in rows]
        mark = self.new_mark()
        for (live, item, *_, through), origin in zip(rows, sources, strict=True):
            argv += (live, items.marked(item, mark), origin, through)
        return self.link.run("append_input", self._key, argv, read=self._replies.appended)

    def release_soon(self, rows: Sequence[Release], credit: int) -> asyncio.Future[Any]:
        """Release input to rows (release_input)."""
        argv: list[Argument] = [credit]
        for row in rows:
            argv += row
        return self.link.run("release_input", self._key, argv, read=self._replies.outcomes)

    def ack_soon(self, rows: Sequence[Ack]) -> asyncio.Future[Any]:
        """Ack rows (ack_input)."""
        argv = [*self._ack_limits]
        for live, worker, epoch, n, saved, mark, journal in rows:
            argv += (live, acking(worker, epoch, n, mark), packed(saved, journal))
        return self.link.run("ack_input", self._key, argv, read=self._replies.outcomes)

    def look_soon(self, lives: Sequence[str]) -> asyncio.Future[Any]:
        """Look at lives (look)."""
        return self.link.run("look", self._key, [*self._look_limits, *lives], read=self._replies.looked)

    def emit_soon(self, rows: Sequence[Emit]) -> asyncio.Future[Any]:
        """Store messages of runtimes (emit)."""
        argv = [*self._emit_limits]
        for row in rows:
            argv += row
        return self.link.run("emit", self._key, argv, read=self._replies.outcomes)


def source(producer: str, n: int, request: str) -> str:
    """Return where an item comes from, as append_input takes it."""
    return f"{producer} {n}" if producer else request


def acking(worker: str, epoch: int, n: int, mark: bytes) -> bytes:
    """Return whose ack it is, and of what, as ack_input takes it."""
    return b"%b %d %d %b" % (worker.encode(), epoch, n, mark)


def encode(step: str, values: dict[str, Any]) -> None:
    """Turn the model's arguments into the arguments of the scripts, in place."""
    if step == "enter":
        values["schema"] = SCHEMA
    elif step == "place":
        create = values["create"] or NO_CREATE
        values.update({field: getattr(create, field) for field in CREATE_FIELDS})
    elif step == "append_input":
        item = items.unmarked(values["kind"], values["payload"], values["boundary"])
        values["item"], values["controller"] = items.marked(item, values["mark"]), ""
        values["source"] = source(values["producer"], values["n"], values["request"])
        values["through"] = values["through"].text() if values["through"] else b""
    elif step == "release_input":
        pull = items.Through(values["worker"], values["epoch"], values["pull_no"], values["after"], values["mark"])
        values["pull"] = pull.text()
    elif step == "ack_input":
        values["acking"] = acking(values["worker"], values["epoch"], values["n"], values["mark"])
        values["saved"] = packed(values["saved"], values.pop("journal"))
    for ours, theirs in IN_LUA.items():
        if ours in values:
            values[theirs] = values.pop(ours)
    if "candidates" in values:
        values["candidates"] = [each if isinstance(each, str) else written(each) for each in values["candidates"]]


CREATE_FIELDS = (
    "digital_id",
    "fingerprint",
    "room",
    "metadata",
    "config",
    "priority",
    "immovable",
    "idle_ms",
    "max_ms",
    "labels",
)
