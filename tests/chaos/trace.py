"""Every step that the store ran, in its order: recorded by the store itself, in the very script that runs the step.

A process that is killed takes with it what it was told; a store that is killed loses a step and its record together.
So the record lies in the store, in the stream `cell_trace`, and the driver reads it there while the storm goes on. A
record's id is its tick, so reading and trimming may be repeated.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from dhsched.ownership import items
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import STEPS, UNCOUNTED
from dhsched.ownership.steps.place import Create
from dhsched.store.steps import scripts
from dhsched.store.steps.replies import appended_row, other_row, outcome
from tests.harness.rows import candidate_of, split_row

FRAME = """{shebang}
local frame_time = redis.call('TIME')
local frame_now = frame_time[1] * 1000 + math.floor(frame_time[2] / 1000)
local function step()
{body}
end
local reply = step()
if reply.err then
  return reply
end
local tick = redis.call('INCR', KEYS[1] .. '_ticks')
redis.call('XADD', KEYS[1] .. '_trace', tick .. '-0', 'r', cmsgpack.pack({{ tick, '{name}', frame_now, ARGV, reply }}))
return reply
"""
FRAME_CLOCK = "local function clock() return frame_now end"
"""In the place of lua/lib/clock.lua: also a step that reads no clock has its time in the record."""
TICKS, TRACE = "cell_ticks", "cell_trace"
COUNTED_AROUND = ("configure", "change_keys")
"""Scripts that are no steps: all that the model knows of them is that the cell counts them."""
IN_MODEL = {theirs: ours for ours, theirs in scripts.IN_LUA.items()}
_LIMITS = frozenset(Limits.__dataclass_fields__)
_CREATE = frozenset(Create.__dataclass_fields__)


def traced_scripts(replacements: Mapping[str, str] | None = None) -> dict[str, scripts.Script]:
    """The real steps and what else is counted, each inside the frame; `replacements` are mutants of Lua files."""
    found = {}
    counted = {name: script for name, script in scripts.scripts_around().items() if name in COUNTED_AROUND}
    for name, script in {**scripts.load({"lib/clock": FRAME_CLOCK, **(replacements or {})}), **counted}.items():
        shebang, _, body = script.source.decode().partition("\n")
        found[name] = replace(script, source=FRAME.format(shebang=shebang, name=name, body=body).encode())
    return found


@dataclass(frozen=True, slots=True)
class Taken:
    """One step of the model: what it was asked and what the store answered."""

    tick: int
    now: int
    step: str
    arguments: dict[str, Any]
    answer: Any
    counted: bool = False
    """Whether it is the first step of a call that the cell counts."""


def read(record: bytes) -> tuple[int, Iterator[Taken]]:
    """A record's tick, and its steps: several where many lives shared one call."""
    tick, name, now, argv, reply = msgspec.msgpack.decode(record)
    return tick, steps_of(tick, name, now, argv, as_bytes(reply))


def steps_of(tick: int, name: str, now: int, argv: list[str], reply: list[Any]) -> Iterator[Taken]:
    if name in COUNTED_AROUND:
        yield Taken(tick, now, name, {}, None, counted=True)
        return
    script = SCRIPTS[name]
    step = "place" if name == "place_create" else name
    fixed = dict(zip(script.argv, argv, strict=False))
    counted = step not in UNCOUNTED
    if counted:
        reply.pop()
    if not script.each:
        answer = outcome(reply[0], reply[2:])
        if step == "enter":
            fixed["server"] = answer.home
        yield Taken(tick, now, step, arguments_of(step, fixed), answer, counted)
        return
    width, rest = len(script.each), argv[len(script.argv) :]
    read_row = appended_row if step == "append_input" else other_row
    for n, one in enumerate(reply[1:]):
        row = dict(zip(script.each, rest[n * width : (n + 1) * width], strict=True))
        yield Taken(tick, now, step, arguments_of(step, {**fixed, **row}), read_row(one), counted and n == 0)


SCRIPTS = scripts.load()
"""For the names of their arguments only."""


def as_bytes(value: Any) -> Any:
    """As a client of the store reads it: words are bytes, numbers are whole."""
    match value:
        case str():
            return value.encode()
        case float():
            return int(value)
        case list():
            return [as_bytes(each) for each in value]
    return value


def arguments_of(step: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a script as the model's step takes them."""
    named = {IN_MODEL.get(name, name): value for name, value in given.items() if name not in _LIMITS}
    values = split_row(step, named)
    if step == "place":
        made = {name: values.pop(name) for name in _CREATE & values.keys()}
        values["create"] = create_of(made) if values["cause"] == "create" else None
    elif step == "enter":
        del values["schema"]
    elif step == "append_input":
        del values["controller"]  # Who gets no hint: nothing of the protocol.
        item = values.pop("item").encode()
        read = items.read(item)
        values["kind"], values["payload"] = read.kind, read.payload
        values["boundary"] = read.boundary and read.kind != "interrupt"
        values["mark"] = items.mark_of(item).decode()
    kinds = kinds_of(step)
    return {name: typed(value, kinds[name]) for name, value in values.items()}


@cache
def kinds_of(step: str) -> Mapping[str, str]:
    """The types of a step's arguments, as the model's signature names them."""
    return {name: str(each.annotation) for name, each in inspect.signature(STEPS[step]).parameters.items()}


def create_of(made: Mapping[str, str]) -> Create:
    kinds = {name: str(field.type) for name, field in Create.__dataclass_fields__.items()}
    return Create(**{name: typed(value, kinds[name]) for name, value in made.items()})


def typed(value: Any, kind: str) -> Any:
    """An argument of a script in the type that the model's signature names."""
    if not isinstance(value, str):
        return value
    match kind:
        case "int":
            return int(value or 0)
        case "bool":
            return value == "1"
        case "bytes":
            return value.encode()
        case "Sequence[str]" | "Iterable[str]":
            return value.split()
        case "Candidates":
            return [candidate_of(each) for each in value.split()]
    return value
