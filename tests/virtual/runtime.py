"""The runtime of a virtual run: writes down what it is given, works, and dies or hangs of what is meant to do that.

The records are those of the ledger of chaos. A runtime of a dead node is closed by nobody: its process forgets it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from dhsched.tasks import cancel
from dhsched.worker import Session
from dhsched.worker.values import object_of, state_of
from tests.chaos.ledger import Consumed, Records
from tests.chaos.runtime import CRASH, POISON
from tests.virtual.loop import NODE, VirtualLoop
from tests.virtual.passed import Passed
from tests.virtual.pictures import publish
from tests.virtual.worst import LONG, MUCH, STUBBORN, hold_out, start_s, write_much

HANG = "hang"
"""A text that begins so makes a runtime hang, every other time."""
SLOW = "slow"
"""A text that begins so takes seconds, of which the runtime has announced more than it needs."""
SLOW_S = (4.0, 12.0)
BROKEN_CONFIG = "broken"
"""A runtime whose configuration has this key dies when it begins, and of the first item after the configuration."""
WORK_MAX_S = 0.3
TEARDOWN_MAX_S = 2.0


class Recorder:
    """What all runtimes of a run wrote down. `note` gets each event for the trace, `wrong` what must not be."""

    def __init__(self, loop: VirtualLoop, seed: int, note: Callable[[str], None], wrong: Callable[[str], None]) -> None:
        self.consumed: list[Consumed] = []
        self.opened: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self.at_once: list[str] = []
        self.running_max: dict[str, int] = {}
        self.hung: list[tuple[float, str, int]] = []
        """When a runtime began to hang, of which live and epoch."""
        self.granted: Mapping[tuple[Any, ...], Collection[tuple[bytes, bytes]]] = {}
        """By live, Worker and epoch: the configuration and the state that the store gave each pull."""
        self.passed: Passed | None = None
        """Where a small run writes down which limits it has passed."""
        self._held_out: set[str] = set()
        self.on_open: Callable[[str, list[str]], None] | None = None
        """Is called with the name of a boot that opens a runtime, and all lives that its machine runs then."""
        self.publishes = False
        """Whether there is a room, to which every runtime sends pictures."""
        self._running: dict[tuple[str, str, int], str] = {}
        self._loop, self._note, self._wrong = loop, note, wrong
        self._rng = Random(f"runtimes {seed}")

    def records(self) -> Records:
        return Records(sorted(self.consumed), self.running_max, self.opened, self.at_once)

    def died(self, boot: str) -> None:
        """Forget the runtimes of a process that was killed."""
        self._running = {generation: each for generation, each in self._running.items() if each != boot}

    async def __call__(self, session: Session) -> None:
        node = NODE.get()
        assert node is not None
        generation = (session.live, session.generation.worker, session.generation.epoch)
        self._open(node.name, generation)
        publishing = asyncio.create_task(publish(session)) if self.publishes else None
        try:
            await self._play(session, generation)
        finally:
            if publishing is not None:
                await cancel(publishing)
            if not node.dead:
                self._running.pop(generation, None)
                self._note(f"close {generation}")

    def _open(self, boot: str, generation: tuple[str, str, int]) -> None:
        if generation in self._running:
            self.at_once.append(f"{generation}")
        self._running[generation] = boot
        self.opened[generation].append(self._loop.now)
        count = sum(each == boot for each in self._running.values())
        self.running_max[boot] = max(count, self.running_max.get(boot, 0))
        if self.on_open is not None:
            machine, running = machine_of(boot), self._running.items()
            self.on_open(boot, [live for (live, _, _), each in running if machine_of(each) == machine])
        self._note(f"open {generation}")

    async def _play(self, session: Session, generation: tuple[str, str, int]) -> None:
        live, worker, epoch = generation
        run, r = len(self.opened[generation]), self._rng
        if self.passed is not None:
            await asyncio.sleep(start_s(live, sum(each == live for each, _, _ in self.opened), r))
        journal = await session.journal()
        if session.claimed.is_set():  # A runtime that was prepared for a move that was given up has read nothing.
            self._read_back(session, journal.values())
        if session.config.get(BROKEN_CONFIG):
            self._note(f"broken {generation}")
            raise RuntimeError(f"{live} has a configuration that no runtime lives with")
        async for item in session.inputs():
            text = item.text
            one = Consumed(self._loop.now, live, worker, epoch, item.seq, item.kind, text, run)
            self.consumed.append(one)
            self._note(f"item {one}")
            session.state = {"seq": item.seq}
            if len(journal) > 50:
                journal.replace([item.seq])
            else:
                journal.append(item.seq)
            if text.startswith(SLOW):
                session.extend(SLOW_S[1] + 1)
                await asyncio.sleep(r.uniform(*SLOW_S))
            await asyncio.sleep(r.uniform(0, WORK_MAX_S))
            if self.passed is not None:
                await self._at_worst(session, text, self.passed)
            if text.startswith(HANG) and r.random() < 0.5:
                self.hung.append((self._loop.now, live, epoch))
                self._note(f"hang {generation}")
                await asyncio.Event().wait()
            if item.kind != "config" and session.config.get(BROKEN_CONFIG):
                raise RuntimeError(f"{live} was given {text} with a configuration that no runtime lives with")
            if text.startswith(POISON) or (text.startswith(CRASH) and r.random() < 0.5):
                raise RuntimeError(f"{live} was given {text}")
        if r.random() < 0.2:
            await asyncio.sleep(r.uniform(0, TEARDOWN_MAX_S))

    async def _at_worst(self, session: Session, text: str, passed: Passed) -> None:
        if text.startswith((MUCH, LONG)):
            await write_much(session, text, passed)
        elif text.startswith(STUBBORN) and text not in self._held_out:
            self._held_out.add(text)
            await hold_out(session, passed, self._loop.time)

    def _read_back(self, session: Session, entries: list[Any]) -> None:
        """Configuration and saved state are those that the store gave a pull of this generation. The state is of the
        last item that was acked with one, and so is the last entry of the journal."""
        given = self.granted.get((session.live, session.generation.worker, session.generation.epoch), ())
        read = (session.config, session.state)
        if read not in [(object_of(config), state_of(state)) for config, state in given]:
            began = f"{session.live}@{session.generation.epoch} began with {read}"
            self._wrong(f"configuration: {began}, and its pulls were given {given}")
        saved = session.state.get("seq")
        if saved != (entries[-1] if entries else None):
            began = f"{session.live}@{session.generation.epoch} began with state {saved}, journal {entries[-3:]}"
            self._wrong(f"state: {began}")
        if entries != sorted({*entries}):
            self._wrong(f"journal: {session.live}@{session.generation.epoch} read {entries}")


def machine_of(boot: str) -> str:
    """Return the name of the machine of a boot: `w1` of `w1.3`."""
    return boot.partition(".")[0]
