"""A cell as version N wrote it: `python tests/upgrade/old_cell.py STORE_URL SEED CALLS`, with the package of N.

Random steps are called on a real store until records of every kind are there: claimed and unclaimed, held before a
move, suspect, waiting for a free slot, closing, ended; with pending items, dead letters, producers and configurations.
The last line is the whole state of the cell as N reads it, as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any

from dhsched.ownership.state import State
from dhsched.ownership.steps.place import Create
from dhsched.store.raw import read_state
from dhsched.store.steps.redis import RedisStore

POOL = "gpu"
WORKERS = 5
CAPACITY = 3
LIVES = 200


def plain(value: Any) -> Any:
    """Return a value of a state as JSON has it."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


class Walk:
    """Random calls on one cell. `state` is the cell before the next call."""

    def __init__(self, store: Any, seed: int) -> None:
        self.store = store
        self.rng = Random(seed)
        self.operations = 0
        self.state = State()

    async def run(self, calls: int) -> None:
        for number in range(WORKERS):
            await self.register(number)
        await self.begin()
        choices: list[tuple[Callable[[], Awaitable[Any]], int]] = [
            *((self.create, 5), (self.pull, 8), (self.append, 12), (self.release, 10), (self.ack, 6)),
            *((self.reserve, 3), (self.hold, 3), (self.end, 1), (self.depart, 8), (self.recover, 8)),
        ]
        for _ in range(calls):
            self.state = await read_state(self.store.link, "main")
            [call] = self.rng.choices([each for each, _ in choices], [weight for _, weight in choices])
            await call()
        await self.fill()

    async def register(self, number: int) -> None:
        made = await self.store.register_worker(name=f"w{number}", boot=f"b{number}", pool=POOL, capacity=CAPACITY)
        await self.store.report(worker=made.worker, boot=f"b{number}")

    def lives(self) -> list[tuple[str, Any]]:
        """The lives that the walk uses and that have not ended."""
        return [(n, r) for n, r in sorted(self.state.lives.items()) if n.startswith("default/l") and r.state != "ended"]

    def any_live(self, *, claimed: bool = False) -> tuple[str, Any]:
        found = [(n, r) for n, r in self.lives() if r.active or not claimed]
        return self.rng.choice(found) if found else ("", None)

    def operation(self) -> str:
        self.operations += 1
        return f"op{self.operations}"

    async def create(self) -> None:
        live = f"default/l{self.rng.randrange(LIVES)}"
        made = Create(
            digital_id="anna",
            fingerprint=live[-2:],
            config=self.rng.choice([b"", b"{}"]),
            priority=self.rng.randrange(4),
        )
        await self.store.place(live=live, operation=self.operation(), cause="create", create=made, pools=[POOL])

    async def pull(self) -> None:
        live, r = self.any_live()
        if r:
            at = {"after": r.acked, "mark": r.acked_mark} if r.acked else {"after": 0}
            await self.store.pull(live=live, worker=r.selected, epoch=r.epoch, controller="c1", **at)

    async def append(self) -> None:
        live, r = self.any_live()
        if r is None:
            return
        kind = self.rng.choice(["text", "text", "text", "config", "interrupt"])
        given = {"producer": f"p{self.rng.randrange(3)}"} if self.rng.random() < 0.5 else {"request": self.operation()}
        if "producer" in given:
            given["n"] = r.producers.get(given["producer"], (0,))[0] + 1
        payload = b'{"speed":1}' if kind == "config" else f"item {self.operation()}".encode()
        await self.store.append_input(live=live, kind=kind, payload=payload, boundary=self.rng.random() < 0.5, **given)

    def at(self, r: Any, n: int) -> Any:
        """Item n as a pull or an ack names it."""
        if n == 0:
            return {}
        return {"mark": r.acked_mark if n == r.acked else r.pending[n - r.acked - 1][1:9]}

    async def release(self) -> None:
        live, r = self.any_live(claimed=True)
        if r:
            how = {"worker": r.selected, "epoch": r.epoch, "pull_no": r.pull_no, "credit": self.rng.randint(1, 4)}
            await self.store.release_input(live=live, after=r.released, **how, **self.at(r, r.released))

    async def ack(self) -> None:
        live, r = self.any_live(claimed=True)
        if r and r.released > r.acked:
            n = self.rng.randint(r.acked + 1, r.released)
            saved = self.rng.choice([None, b"state of %d" % n])
            await self.store.ack_input(live=live, worker=r.selected, epoch=r.epoch, n=n, saved=saved, **self.at(r, n))

    async def reserve(self) -> None:
        live, r = self.any_live(claimed=True)
        others = [worker for worker in sorted(self.state.workers) if r and worker != r.selected]
        if others:
            await self.store.reserve(live=live, expected=r.epoch, candidates=[self.rng.choice(others)])

    async def hold(self) -> None:
        moving = [(name, r) for name, r in self.lives() if r.move]
        if moving:
            live, r = self.rng.choice(moving)
            await self.store.hold(live=live, number=r.move.number)

    async def end(self) -> None:
        live, r = self.any_live()
        if r:
            await self.store.end_live(live=live, after_pending=self.rng.random() < 0.7)

    async def depart(self) -> None:
        """A runtime that is to go has gone; or one that has a live has crashed."""
        leaving = [
            (w, tag) for w, slots in sorted(self.state.slots.items()) for tag in slots if slots[tag] == "departing"
        ]
        if leaving and self.rng.random() < 0.8:
            worker, tag = self.rng.choice(leaving)
            live, _, number = tag.rpartition("@")
            await self.store.depart(worker=worker, live=live, number=int(number))
            return
        live, r = self.any_live(claimed=True)
        if r:
            reason = self.rng.choice(["", "the runtime has crashed"])
            await self.store.depart(worker=r.selected, live=live, number=r.epoch, reason=reason)

    async def recover(self) -> None:
        vacant = [(name, r) for name, r in self.lives() if not r.active and r.pull_no]
        if vacant:
            live, r = self.rng.choice(vacant)
            where = {"pools": [POOL]} if self.rng.random() < 0.8 else {"candidates": [r.selected]}
            await self.store.place(live=live, operation=self.operation(), cause="recover", expected=r.epoch, **where)

    async def begin(self) -> None:
        """Three lives that the walk leaves alone: one with a dead letter, one held before a move, one for `fill`."""
        await self.poison("default/poisoned", "w0#1")
        await self.claimed("default/moving", "w1#2")
        reserved = await self.store.reserve(live="default/moving", expected=1, candidates=["w3#4"])
        await self.store.append_input(live="default/moving", kind="text", payload=b"moves", request=self.operation())
        await self.store.hold(live="default/moving", number=reserved.number)
        await self.claimed("default/waiting", "w2#3")

    async def claimed(self, live: str, worker: str) -> None:
        made = Create(digital_id="anna", fingerprint="f")
        create = {"live": live, "operation": self.operation(), "cause": "create", "create": made}
        await self.store.place(**create, candidates=[worker])
        await self.store.pull(live=live, worker=worker, epoch=1, after=0, controller="c1")

    async def poison(self, live: str, worker: str) -> None:
        """Let generation after generation die over one item, until it is a dead letter."""
        await self.claimed(live, worker)
        for text in (b"it kills", b"it waits"):
            await self.store.append_input(live=live, kind="text", payload=text, request=self.operation())
        r = (await read_state(self.store.link, "main")).lives[live]
        while not r.dead:
            who = {"live": live, "worker": r.selected, "epoch": r.epoch}
            pulled = await self.store.pull(**who, after=0, controller="c1")
            await self.store.release_input(**who, pull_no=pulled.pull_no, after=0, credit=1)
            await self.store.depart(worker=r.selected, live=live, number=r.epoch, reason="it has crashed")
            recover = {"operation": self.operation(), "cause": "recover", "expected": r.epoch, "pools": [POOL]}
            await self.store.place(live=live, **recover)
            r = (await read_state(self.store.link, "main")).lives[live]

    async def fill(self) -> None:
        """Leave no slot free, and one recovery that waits for one."""
        for n in range(WORKERS * CAPACITY + 1):
            made = Create(digital_id="anna", fingerprint="f")
            create = {"live": f"default/full{n}", "operation": self.operation(), "cause": "create", "create": made}
            await self.store.place(**create, pools=[POOL])
        self.state = await read_state(self.store.link, "main")
        live, worker = "default/waiting", "w2#3"
        await self.store.expire_worker(worker=worker, beat=self.state.workers[worker].beat)
        recover = {"operation": self.operation(), "cause": "recover", "expected": 1, "pools": [POOL]}
        await self.store.place(live=live, **recover)


async def main(url: str, seed: int, calls: int) -> None:
    async with await RedisStore.open(url) as store:
        await Walk(store, seed).run(calls)
        print(json.dumps(plain(await read_state(store.link, "main"))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
