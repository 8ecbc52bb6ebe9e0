"""What was asked of a drain, and how the lives on a Worker stand: what the loops that move lives go by.

That a Worker drains is its mode, which the steps know. By when, and how patiently, is a wish beside it in `drains`, one
field per WorkerID. No step reads the wish; each change is one command, or the script `say_once`. A WorkerID never comes
back, so what is left of one that is gone can be removed by anybody at any time. Times are the store's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from dhsched.store.keys import Keys
from dhsched.store.link import Link
from dhsched.store.raw import hash_of
from dhsched.store.replies import text
from dhsched.types import split_tag

Said = Literal["blocked", "done"]
SAID: tuple[str, ...] = get_args(Said)


class Wish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked. `lives` is how many there were; 0 for a deadline that nobody set."""

    asked_at_ms: int
    lives: int
    boundary_wait_s: float
    deadline_at_ms: int = 0


class OnWorker(NamedTuple):
    """A live whose current generation is on the Worker, and its move, if it has one."""

    live: str
    epoch: int
    slot: str
    digital_id: str
    immovable: bool
    priority: int
    pending: int
    target: str = ""
    number: int = 0
    expires_at_ms: int = 0
    hold: str = ""
    """Where input stops: an item's number, `next`, or empty while the target prepares."""


FIELDS = (
    *("epoch", "selected", "digital_id", "immovable", "priority", "appended", "acked"),
    *("move_target", "move_number", "move_expires", "move_hold"),
)
OWNED_AND_RUN = (b"starting", b"running")
"""Slots that a planned move is for: a vacant one is recovery's."""


async def store_now_ms(link: Link) -> int:
    seconds, micros = await link.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


# -- wishes


async def wishes(link: Link, keys: Keys) -> dict[str, Wish]:
    """Every wish, by WorkerID; one that cannot be read counts as not there."""
    found = hash_of(await link.call("HGETALL", keys.of("drains")))
    return {worker: wish for worker, value in found.items() if " " not in worker and (wish := _read(value)) is not None}


async def wish_of(link: Link, keys: Keys, worker: str) -> Wish | None:
    value = await link.call("HGET", keys.of("drains"), worker)
    return None if value is None else _read(value)


async def put_wish(link: Link, keys: Keys, worker: str, wish: Wish) -> None:
    await link.call("HSET", keys.of("drains"), worker, msgspec.json.encode(wish))


async def forget_wishes(link: Link, keys: Keys, workers: Iterable[str]) -> bool:
    """Forget the wishes for these Workers, and what was said of their drains; whether there was anything."""
    fields = [field for worker in workers for field in (worker, *(f"{worker} {what}" for what in SAID))]
    return bool(fields) and bool(await link.call("HDEL", keys.of("drains"), *fields))


async def first_to_say(link: Link, keys: Keys, worker: str, what: Said) -> bool:
    """Whether nobody has said this yet of the Worker's drain: every replica sees the same, and one says it.

    Of a drain that was cancelled nothing more is said: a replica may still see it for a moment.
    """
    return bool(await link.run("say_once", [keys.cell], [worker, what]))


def _read(value: bytes) -> Wish | None:
    try:
        return msgspec.json.decode(value, type=Wish)
    except msgspec.MsgspecError:
        return None


# -- turns


async def take_turn(link: Link, keys: Keys, pool: str, replica: str, turn_ms: int) -> bool:
    """Whether it is this replica's turn to even out the Pool. Nothing depends on there being one only."""
    return await link.call("SET", keys.of("rebalanced", pool), replica, "NX", "PX", turn_ms) is not None


# -- lives


async def planned_load(link: Link, keys: Keys, worker: str) -> tuple[int, int]:
    """What a Worker will hold once the moves under way are done, and the lives that run on it and have none.

    A live with a move counts where it goes: its reserved slot is there, and its source counts it among its cutovers.
    """
    states, cutovers = await asyncio.gather(
        link.call("HVALS", keys.of("slots", worker)), link.call("HGET", keys.of("worker", worker), "cutovers")
    )
    held = sum(1 for state in states if state != b"departing")
    running = sum(1 for state in states if state == b"running")
    leaving = int(cutovers or 0)
    return held - leaving, max(0, running - leaving)


async def lives_on(link: Link, keys: Keys, worker: str) -> list[OnWorker]:
    """The lives that run or start on a Worker, by name. Read one after the other: a step may fall in between."""
    slots = hash_of(await link.call("HGETALL", keys.of("slots", worker)))
    owned = {split_tag(tag): text(state) for tag, state in slots.items() if state in OWNED_AND_RUN}
    found = await asyncio.gather(*(_fields(link, keys, live) for live, _ in owned))
    rows = [
        on_worker(live, slot, fields)
        for ((live, epoch), slot), fields in zip(owned.items(), found, strict=True)
        if fields[0] is not None and int(fields[0]) == epoch and text(fields[1]) == worker
    ]
    return sorted(rows)


async def live_with_move(link: Link, keys: Keys, live: str) -> tuple[str, OnWorker] | None:
    """A live's Worker, and how it stands there; None where there is no such live."""
    fields = await _fields(link, keys, live)
    return None if fields[0] is None else (text(fields[1]), on_worker(live, "", fields))


async def is_empty(link: Link, keys: Keys, worker: str) -> bool:
    """No slot of any kind is left on the Worker."""
    return not await link.call("HLEN", keys.of("slots", worker))


async def mode_of(link: Link, keys: Keys, worker: str) -> str:
    mode = await link.call("HGET", keys.of("worker", worker), "mode")
    return "" if mode is None else text(mode)


async def _fields(link: Link, keys: Keys, live: str) -> Sequence[Any]:
    found: Sequence[Any] = await link.call("HMGET", keys.of("live", live), *FIELDS)
    return found


def on_worker(live: str, slot: str, fields: Sequence[Any]) -> OnWorker:
    epoch, _, digital_id, immovable, priority, appended, acked, target, number, expires, hold = (
        text(value) if value is not None else "" for value in fields
    )
    return OnWorker(
        live=live,
        epoch=int(epoch),
        slot=slot,
        digital_id=digital_id,
        immovable=immovable == "1",
        priority=int(priority or 0),
        pending=int(appended or 0) - int(acked or 0),
        target=target,
        number=int(number or 0),
        expires_at_ms=int(expires or 0),
        hold=hold if target else "",
    )
