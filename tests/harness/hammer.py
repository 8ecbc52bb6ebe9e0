"""One process of the hammer: random steps on a cell that others hammer as well, and a history of what it was told.

    python -m tests.harness.hammer STORE_URL SEED OPERATIONS HISTORY

It says `ready` when it is connected and begins when a line comes in, so that all of them run at once. The history has
one JSON object per line: tick, step, arguments, outcome.

The scripts are the real ones inside a frame that counts them. The count, `tick`, is the time that the step sees and
that its reply carries, so the merged histories are in the very order in which the store ran the steps, and the model
can be given the same steps at the same times.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any, TextIO

from dhsched.ownership.journal import Change
from dhsched.ownership.state import State
from dhsched.ownership.steps.place import Create
from dhsched.store.raw import decode
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script, load
from dhsched.types import Equals, written
from tests.conformance.operations import LIMITS, Operation, draw
from tests.conformance.real import HELD, Greeted
from tests.harness.rows import candidate_of

FRAME = """{shebang}
local tick = redis.call('INCR', KEYS[1] .. '_ticks')
local function step()
{body}
end
local reply = step()
reply[type(reply[1]) == 'number' and 1 or 2] = tick
return reply
"""
TICK_CLOCK = "local function clock() return tick end"
"""In the place of lua/lib/clock.lua, inside the frame."""
PICTURE = """
local picture = {}
for _, key in ipairs(redis.call('KEYS', string.sub(KEYS[1], 1, -5) .. '*')) do
  local kind = redis.call('TYPE', key).ok
  local value = kind == 'hash' and redis.call('HGETALL', key)
    or kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    or kind == 'list' and redis.call('LRANGE', key, 0, -1)
  if value then
    picture[#picture + 1] = { key, value }
  end
end
return picture
"""
"""All keys of the cell at one moment, which reading them one by one would not give while others write."""
STEPS_PER_PICTURE = 5  # In between a process acts on what it saw: that is what makes it late, and interesting.
SENT_MAX = 40  # Operations that may be sent once more.


def ordered_scripts() -> dict[str, Script]:
    """The real steps, each inside the frame."""
    scripts = {}
    for name, script in load({**HELD, "lib/clock": TICK_CLOCK}).items():
        shebang, _, body = script.source.decode().partition("\n")
        scripts[name] = replace(script, source=FRAME.format(shebang=shebang, body=body).encode())
    return scripts


async def open_store(url: str) -> RedisStore:
    return await RedisStore.open(url, limits=LIMITS, scripts=ordered_scripts(), entry=Greeted())


async def picture(store: RedisStore) -> State:
    pairs = await store.link.call("EVAL", PICTURE, 1, store.keys.cell)
    return decode({key.decode()[len(store.keys.prefix) :]: value for key, value in pairs})


# -- a history, as lines of text


def write_line(tick: int, operation: Operation, outcome: Any) -> str:
    line = {
        "tick": tick,
        "step": operation.name,
        "arguments": as_text(dict(operation.arguments)),
        "outcome": said(outcome),
    }
    return json.dumps(line)


def said(outcome: Any) -> dict[str, Any]:
    """An outcome as a history has it: its word and its fields."""
    fields: dict[str, Any] = as_text(asdict(outcome))
    return {"is": type(outcome).__name__, **fields}


PLAIN = frozenset({str, int, bool, float, type(None)})


def as_text(value: Any) -> Any:
    if value.__class__ in PLAIN:
        return value
    match value:
        case bytes():
            return value.decode("latin-1")
        case Create() | Change():
            return as_text(asdict(value))
        case Equals():
            return written(value)
        case Mapping():
            return {key: as_text(each) for key, each in value.items()}
        case list() | tuple():
            return [as_text(each) for each in value]
    return value


def read_arguments(line: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a line, as the step takes them."""
    arguments = dict(line["arguments"])
    for name in ("payload", "saved", "mark", "data"):
        if isinstance(arguments.get(name), str):
            arguments[name] = arguments[name].encode("latin-1")
    if "candidates" in arguments:
        arguments["candidates"] = [candidate_of(each) for each in arguments["candidates"]]
    if isinstance(arguments.get("journal"), dict):
        change = arguments["journal"]
        entries = tuple(entry.encode("latin-1") for entry in change["entries"])
        arguments["journal"] = Change(change["drop"], change["first"], entries)
    if arguments.get("create"):
        made = arguments["create"]
        arguments["create"] = Create(
            **{**made, **{k: made[k].encode("latin-1") for k in ("metadata", "config", "labels")}}
        )
    return arguments


# -- the process


async def hammer(store: RedisStore, r: Random, operations: int, history: TextIO) -> None:
    sent: list[Operation] = []
    state = State()
    for n in range(operations):
        if n % STEPS_PER_PICTURE == 0:
            state = await picture(store)
        while (operation := draw(r, state, sent)).name == "enter":
            pass  # Each process is a connection of its own: a home that one began would stop the others.
        outcome = await getattr(store, operation.name)(**operation.arguments)
        history.write(write_line(store.now_ms, operation, outcome) + "\n")
        sent = [*sent, operation][-SENT_MAX:]


async def main(url: str, seed: str, operations: int, history: TextIO) -> None:
    async with await open_store(url) as store:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await hammer(store, Random(seed), operations, history)


if __name__ == "__main__":
    with Path(sys.argv[4]).open("w") as file:
        asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), file))
