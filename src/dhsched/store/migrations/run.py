"""Carry out migrations, while no service uses the cell. See the package."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from dhsched.errors import DhschedError, StoreIncompatible, StoreRefused
from dhsched.store.keys import SCHEMA, Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.migrations import TABLE, is_known, remedy, scripts
from dhsched.store.raw import CALL_S
from dhsched.store.records.controllers import ControllerRecords
from dhsched.store.records.replicas import ReplicaRecords
from dhsched.store.steps.replies import text

BATCH = 200  # Lives of one script: a few milliseconds of the store.
BATCH_MAX = 5_000
SERVICES = ("dhsched-dispatch", "dhsched-infer")
"""Names of the connections that write."""
ROLES = {"dispatch": "Dispatch replica", "infer": "Infer-Controller"}


class Progress(NamedTuple):
    """How far one migration is: lives that have the new form, of all."""

    source: int
    target: int
    done: int
    total: int


async def read_schema(address: Address, cell: str) -> str:
    """Return the schema of the cell, such as `2`, or `2>3` for a migration that is not finished."""
    keys = Keys(cell)
    async with await Link.open(address, {}, slot_key=keys.cell) as link:
        return await _schema(link, keys)


async def migrate(
    address: Address, cell: str, *, batch: int = BATCH, tell: Callable[[Progress], object] = lambda _: None
) -> list[Progress]:
    """Bring a cell to the schema of this version; return the end of each migration that it took, none if it had it.

    Raise DhschedError, with nothing changed, if a service of the cell is connected or has reported just now.
    """
    keys = Keys(cell)
    settings = LinkSettings(deadline_s=CALL_S, client_name="dhsched-migrate")
    done = []
    async with await Link.open(address, scripts(), settings, slot_key=keys.cell) as link:
        while (schema := await _schema(link, keys)) != str(SCHEMA):
            if not is_known(schema):
                raise StoreIncompatible(
                    f"cell {cell} holds data of schema {schema}, and this version of dhsched migrates from"
                    f" {min(TABLE)} to {SCHEMA}; nothing was changed: {remedy(cell, schema)}"
                )
            source = int(schema.partition(">")[0])
            if ">" not in schema:
                await _refuse_users(link, keys)
                await _run(link, keys, "begin", source, f"migrating-{secrets.token_hex(4)}")
            await _disconnect(link, keys)
            done.append(await _walk(link, keys, source, batch, tell))
    return done


async def _schema(link: Link, keys: Keys) -> str:
    found = await link.call("HGET", keys.cell, "schema")
    if found is None:
        raise DhschedError(f"store {link.address.redacted()} has no cell {keys.cell_name}: there is nothing to migrate")
    return text(found)


async def _walk(link: Link, keys: Keys, source: int, batch: int, tell: Callable[[Progress], object]) -> Progress:
    while True:
        outcome, *numbers = await _run(link, keys, TABLE[source], source, batch)
        if outcome == b"OTHER":
            # Another process has finished it meanwhile.
            return Progress(source, source + 1, 0, 0)
        progress = Progress(source, source + 1, *(int(number) for number in numbers))
        tell(progress)
        if outcome == b"DONE":
            return progress


async def _run(link: Link, keys: Keys, script: str, source: int, *rest: str | int) -> list[Any]:
    reply: list[Any] = await link.run(script, [keys.cell], [source, source + 1, *rest])
    return reply


# -- who else is there


async def _refuse_users(link: Link, keys: Keys) -> None:
    """Raise DhschedError if services of the cell are connected, or have said a moment ago that they are there."""
    found = await _connected(link, keys)
    found += [f"Infer-Controller {each.id}" for each in await ControllerRecords(link, keys).all()]
    reported = [each.report for each in await ReplicaRecords(link, keys).all()]
    found += [f"{ROLES.get(each.role, each.role)} {each.name}" for each in reported]
    if found:
        raise DhschedError(
            f"cell {keys.cell_name} is in use by {', '.join(sorted({*found}))}; nothing was changed: stop every"
            " Dispatch replica and Infer-Controller of the cell, and repeat this (one that was killed counts for 15 s"
            " more)"
        )


async def _connected(link: Link, keys: Keys) -> list[str]:
    """Return the services that listen on the cell's channels: each does as long as it is connected."""
    pattern = keys.prefix.replace("{", "\\{") + "*"
    channels = [text(each)[len(keys.prefix) :] for each in await link.call("PUBSUB", "SHARDCHANNELS", pattern)]
    pairs = (channel.partition(":") for channel in channels)
    named = sorted(f"{ROLES[kind]} {name}" for kind, _, name in pairs if kind in ROLES)
    # Every Dispatch replica listens on `due`, and on a channel of its own once a Worker has come to it.
    return ["a Dispatch replica", *named] if "due" in channels else named


async def _disconnect(link: Link, keys: Keys) -> None:
    """Close the connections of services that came between the look and the beginning.

    Nobody can enter the cell any more. But a service that entered it and was then suspended would go on with its old
    connection when it is resumed, and the next home on this server has the same name. A connection does not tell its
    cell. So those that listen on no channel yet are closed, and all of them if anybody listens on this cell's; services
    of other cells on the same server connect again.
    """
    everybody = bool(await _connected(link, keys))
    try:
        listed = text(await link.call("CLIENT", "LIST"))
        for line in listed.splitlines():
            facts = dict(part.partition("=")[::2] for part in line.split(" "))
            if facts.get("name") in SERVICES and (everybody or facts.get("ssub", "0") == "0"):
                await link.call("CLIENT", "KILL", "ID", facts["id"])
    except StoreRefused as refusal:
        raise DhschedError(
            f"store {link.address.redacted()} does not let us see and close connections ({refusal}), so a suspended"
            " service could write between: give the user the right to CLIENT LIST and CLIENT KILL, and repeat this"
        ) from refusal
