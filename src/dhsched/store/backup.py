"""A cell as a file: taken at one moment, checked, and restored so that nothing which was issued before is trusted.

    back_up   pause writes, read every key (DUMP), go on: the file is one moment of the whole cell
    read      the file again, with its checksum
    restore   write every key into a cell that is empty, the record `cell` last
    verify    restore into a server of our own, and check the invariants of the protocol there

Why a restore begins a term. After the moment of the backup the cell went on: it placed lives, registered Workers,
granted pulls. Those numbers are not in the file, but Workers, rooms and controllers may still hold them. A restored
cell that went on counting would issue them again, to others. So a restore runs the steps `enter` and `new_term` on the
record `cell` before anybody can see it: a home begins with a jump that is larger than all jumps since the backup can
have been, and a term with a floor above that. Every generation in the file is below the floor, and each live is placed
anew from what it had saved. This holds on the same server, too, whose name alone would begin no home.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import dhsched
from dhsched.errors import DhschedError, StoreIncompatible, StoreRefused
from dhsched.ownership.invariants import of_state
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.outcomes import NewTerm
from dhsched.ownership.state import State
from dhsched.ownership.steps.enter import JUMP_SPREAD, enter
from dhsched.ownership.steps.new_term import new_term
from dhsched.store.keys import SCHEMA, Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.link.wire import Arg
from dhsched.store.migrations import is_known, remedy
from dhsched.store.migrations.run import migrate
from dhsched.store.raw import decode_cell, in_turn, read_state, scan_keys
from dhsched.store.records.server import ServerRecords
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.replies import text

FORMAT = 1
RECORD_BYTES_MAX = 2**30  # A longer record is refused: the file is damaged.
RESTORE_JUMP = 2**40
"""How far the numbers of a restored cell jump. Each home since the backup may have jumped by `JUMP_SPREAD`, 2^28, so
this is more than 4,000 homes; a cell can be restored 1,000 times before its numbers end."""
KEYS_AT_ONCE = 250  # Keys that one script reads: about a millisecond of the store.
READ_KEYS = """
local read = {}
for i, key in ipairs(KEYS) do
  read[2 * i - 1], read[2 * i] = redis.call('DUMP', key), redis.call('PEXPIRETIME', key)
end
return read"""
"""Reads keys, with their times of expiry. The script is no part of the protocol; it is here because a call for each key
would keep the store's writes waiting for longer. Read-only scripts run while writes stand still."""
NOT_KEPT = ("controllers", "replicas", "counts", "pending", "brake", "rebalanced", "evening")
"""Keys that only say what processes did in the last seconds. A backup leaves them out."""
RESTORED = "restored"  # The name of the home that a restore begins, with a random end.


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a backup: its cell, its schema, and the store's time when it was taken."""

    format: int
    version: str
    schema: int
    cell: str
    taken_at_ms: int
    term: int
    pos: int
    server: str


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One key, without the cell's prefix. `expires_at_ms` is 0 for a key that does not expire."""

    key: str
    expires_at_ms: int
    dump: bytes


class Trailer(msgspec.Struct, frozen=True):
    """The end of the file: how many keys there are, and the checksum of everything before."""

    keys: int
    sha256: str


class Backup(NamedTuple):
    """A whole backup. `cell` are the fields of the record `cell`, which a restore writes last and changed."""

    header: Header
    cell: dict[str, bytes]
    rows: Sequence[Row]


class Restored(NamedTuple):
    """The result of a restore: the backup's header, the number of keys, and the term that has begun."""

    header: Header
    keys: int
    term: int
    floor: int


class Verified(NamedTuple):
    """The contents of a backup, and every invariant that it violates, as sentences; a good backup violates none."""

    header: Header
    keys: int
    lives: int
    workers: int
    violations: Sequence[str]


# -- taking one


async def back_up(address: Address, cell: str, path: Path, *, pause_s: float) -> tuple[Header, float]:
    """Write the cell to a file that only this user can read. Return its header, and for how long writes stood still.

    Raise DhschedError, and write nothing, if the cell cannot be read within `pause_s`.
    """
    keys = Keys(cell)
    async with await Link.open(address, {}, slot_key=keys.cell) as link:
        server = ServerRecords(link)
        began = time.monotonic()
        try:
            await link.call("CLIENT", "PAUSE", int(pause_s * 1000), "WRITE")
        except StoreRefused as refusal:
            raise DhschedError(
                f"store {address.redacted()} does not let us pause its writes ({refusal}), so a backup would not be "
                "one moment: give the user the right to CLIENT PAUSE, or keep copies of the server's own files"
            ) from refusal
        try:
            fields, rows = await _read(link, keys)
            # The pause began after this clock did, so whatever was answered until now was read within it.
            took_s = time.monotonic() - began
        finally:
            await link.call("CLIENT", "UNPAUSE")
        if took_s >= pause_s:
            raise DhschedError(
                f"reading {len(rows)} keys took {took_s:.1f} s, longer than the {pause_s:g} s for which writes were "
                "paused: give --pause more seconds, at a quiet time, or keep copies of the server's own files"
            )
        if not fields:
            raise DhschedError(f"store {address.redacted()} has no cell {cell}: there is nothing to back up")
        if not fields["schema"].isdigit():
            raise DhschedError(f"cell {cell} is between two schemas: {remedy(cell, text(fields['schema']))}")
        known = decode_cell(fields, ())
        header = Header(
            format=FORMAT,
            version=dhsched.__version__,
            schema=int(fields["schema"]),
            cell=cell,
            taken_at_ms=await server.now_ms(),
            term=known.term,
            pos=known.pos,
            server=(await server.info("server")).get("redis_version", ""),
        )
    write(path, Backup(header, fields, rows))
    return header, took_s


async def _read(link: Link, keys: Keys) -> tuple[dict[str, bytes], list[Row]]:
    names = [key for key in await scan_keys(link, keys) if key.partition(":")[0] not in (*NOT_KEPT, "cell")]
    groups = [names[start : start + KEYS_AT_ONCE] for start in range(0, len(names), KEYS_AT_ONCE)]
    commands: list[tuple[Arg, ...]] = [
        ("EVAL_RO", READ_KEYS, len(group), *(keys.prefix + name for name in group)) for group in groups
    ]
    rows = []
    for group, answer in zip(groups, await in_turn(link, commands), strict=True):
        for name, dump, expires in zip(group, answer[::2], answer[1::2], strict=True):
            if dump is not None:  # It expired meanwhile.
                rows.append(Row(name, max(0, int(expires)), bytes(dump)))
    fields = {text(name): value for name, value in (await link.call("HGETALL", keys.cell)).items()}
    return fields, rows


# -- the file: records, each with its length; a header, the fields of `cell`, the rows, a trailer


def write(path: Path, backup: Backup) -> None:
    """Write a backup that appears whole or not at all. Only this user may read the file: it has the cell's secrets."""
    digest = hashlib.sha256()
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            for record in (backup.header, backup.cell, *backup.rows):
                digest.update(part := _framed(record))
                file.write(part)
            file.write(_framed(Trailer(len(backup.rows), digest.hexdigest())))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise DhschedError(f"cannot write {path} ({error.strerror})") from error


def _framed(record: Any) -> bytes:
    raw = msgspec.msgpack.encode(record)
    return len(raw).to_bytes(8, "big") + raw


def read(path: Path) -> Backup:
    """Return the backup in a file. Raise DhschedError if it is none, not whole, changed, or of another version."""
    digest = hashlib.sha256()
    try:
        records = [*_records(path)]
        *parts, end = records
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        trailer = msgspec.msgpack.decode(end, type=Trailer)
        header = msgspec.msgpack.decode(parts[0], type=Header)
        if trailer.sha256 != digest.hexdigest() or trailer.keys != len(parts) - 2:
            raise ValueError("its checksum is another one")
        fields = msgspec.msgpack.decode(parts[1], type=dict[str, bytes])
        rows = [msgspec.msgpack.decode(part, type=Row) for part in parts[2:]]
    except OSError as error:
        raise DhschedError(f"cannot read {path} ({error.strerror})") from error
    except (ValueError, IndexError, msgspec.MsgspecError) as error:
        raise DhschedError(f"{path} is not a whole backup ({error}): take another one") from error
    if header.format != FORMAT or not (header.schema == SCHEMA or is_known(str(header.schema))):
        raise StoreIncompatible(
            f"{path} was written by dhsched {header.version} (format {header.format}, schema {header.schema}); this is "
            f"{dhsched.__version__} (format {FORMAT}, schema {SCHEMA}): restore it with the version that wrote it"
        )
    return Backup(header, fields, rows)


def _records(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(8):
            length = int.from_bytes(head, "big")
            if len(head) < 8 or length > RECORD_BYTES_MAX:
                raise ValueError("a record is damaged")
            raw = file.read(length)
            if len(raw) < length:
                raise ValueError("its end is missing")
            yield raw


# -- restoring it


async def restore(address: Address, backup: Backup, *, replace_cell: bool = False) -> Restored:
    """Write a backup into the store, in a new home and a new term. The cell must be empty, unless `replace_cell`.

    Nobody can use the cell before the record `cell` is there, which comes last. A restore that was broken off has left
    keys without that record: repeat it with `replace_cell`.
    """
    keys = Keys(backup.header.cell)
    async with await Link.open(address, {}, slot_key=keys.cell) as link:
        there = await scan_keys(link, keys)
        if there and not replace_cell:
            raise DhschedError(
                f"store {address.redacted()} has {len(there)} keys of cell {keys.cell_name}: restore into an empty "
                "store, or give --replace, which deletes them"
            )
        # The record first: a service that still runs must not find half of a cell.
        ordered = sorted(there, key=lambda name: name != "cell")
        await in_turn(link, [("UNLINK", keys.prefix + name) for name in ordered])
        await _write_rows(link, keys, backup)
        fields, home, floor = restored_cell(backup, await ServerRecords(link).now_ms())
        await link.call("RPUSH", keys.of("homes"), home)
        waiting = keys.of("restoring")
        await link.call("HSET", waiting, *(part for pair in fields.items() for part in pair))
        if not await link.call("RENAMENX", waiting, keys.cell):
            await link.call("UNLINK", waiting)
            raise DhschedError(
                f"a service has begun cell {keys.cell_name} anew while it was restored: stop every Dispatch "
                "replica and Infer-Controller, and repeat this with --replace"
            )
    return Restored(backup.header, len(backup.rows) + 1, int(fields["term"]), floor)


async def _write_rows(link: Link, keys: Keys, backup: Backup) -> None:
    try:
        await in_turn(
            link,
            [("RESTORE", keys.prefix + row.key, row.expires_at_ms, row.dump, "ABSTTL") for row in backup.rows],
        )
    except StoreRefused as refusal:
        raise DhschedError(
            f"store {link.address.redacted()} cannot restore what server {backup.header.server} has written "
            f"({refusal}): use a server of the same kind that is not older"
        ) from refusal


def restored_cell(backup: Backup, now_ms: int) -> tuple[dict[str, str | bytes], str, int]:
    """Return the fields of the restored record `cell`, the row of its home, and the floor of its term: what the steps
    `enter` and `new_term` make of the record in the backup."""
    cell = decode_cell(backup.cell, ())
    name = f"{RESTORED}-{secrets.token_hex(4)}"
    jump = RESTORE_JUMP + secrets.randbelow(JUMP_SPREAD)
    state, _ = enter(State(cell=cell), now_ms, DEFAULT_LIMITS, server=name, jump=jump)
    state, begun = new_term(state, now_ms, DEFAULT_LIMITS, term=cell.term)
    assert isinstance(begun, NewTerm)
    after = state.cell
    changed = ("term", "epoch_floor", "epoch_base", "pull_base", "workers_issued", "rev")
    new: dict[str, str | bytes] = {each: str(getattr(after, each)) for each in changed}
    fields = {**backup.cell, **new, "home": name}
    return fields, f"{name} {cell.pos} {now_ms}", begun.floor


# -- verifying it


async def verify(backup: Backup) -> Verified:
    """Load a backup into a server of our own and check the protocol's invariants on it. Nothing else is changed."""
    keys = Keys(backup.header.cell)
    async with Embedded() as server, await Link.open(server.address, {}) as link:
        await _write_rows(link, keys, backup)
        await link.call("HSET", keys.cell, *(part for pair in backup.cell.items() for part in pair))
        await migrate(server.address, keys.cell_name)  # A backup of an older schema, before a migration of the cell.
        state = await read_state(link, keys.cell_name)
    return Verified(backup.header, len(backup.rows) + 1, len(state.lives), len(state.workers), of_state(state))
