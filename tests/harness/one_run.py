"""One run on a rig: its lives, what was accepted for them, and what must hold of what their runtimes consumed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from tests.harness.rig import READY_S, Rig, RigWorker, until_true

TRIES = 300
TRY_S = 0.1


class Fence(NamedTuple):
    """A commit that was answered when `accepted` items were in: no epoch below it may see a later one."""

    live: str
    epoch: int
    accepted: int


class Run:
    def __init__(self, rig: Rig, seed: int, *, short: bool = False) -> None:
        self.rig = rig
        self.rng = Random(seed)
        self.name = f"r{seed}"
        self.short = short
        self.accepted: dict[str, list[str]] = defaultdict(list)
        self.fences: list[Fence] = []
        self.ends: list[str] = []
        self._requests = 0

    async def pause(self, most_s: float) -> None:
        await asyncio.sleep(self.rng.uniform(0, most_s))

    # -- what an application does

    async def create(self, *, on: RigWorker | None = None, digital_id: str = "gpu") -> str:
        live = f"{self.name}-{len(self.ends)}"
        self.ends.append(live)
        body = {"live_id": live, "digital_id": digital_id}
        status, placed = await self.rig.call("POST", f"{self.rig.dispatch}/v1/lives?wait_s=20", body)
        assert status in (200, 201), placed
        if on is not None and placed["worker"] != on.id:
            await self.move(live, on)
        return live

    async def move(self, live: str, to: RigWorker) -> int:
        """To this Worker, whatever is under way; its new epoch."""
        for _ in range(TRIES):
            at = await self.at(live)
            body = {"expected_epoch": at["epoch"], "target": to.id}
            status, placed = await self.rig.call("POST", f"{self.rig.dispatch}/v1/lives/{live}/reassign", body)
            if status == 200:
                self.fence(live, placed["epoch"])
                return int(placed["epoch"])
            await asyncio.sleep(TRY_S)
        raise AssertionError(f"{live} cannot be moved to {to.id}: {placed}")

    async def at(self, live: str) -> Any:
        return await self.rig.get(f"/v1/lives/{live}")

    async def push(self, live: str, text: str, *, by: int | None = None) -> None:
        """To its end: what was not answered or refused for now is said again, with the same request id."""
        self._requests += 1
        body = {"text": text, "request_id": f"{self.name}-{self._requests}"}
        for _ in range(TRIES):
            chosen = self.rng.randrange(2) if by is None else by
            status, said = await self.rig.call("POST", f"{self.rig.infer[chosen]}/v1/lives/{live}/text", body)
            if status == 200:
                self.accepted[live].append(text)
                # A duplicate, one that was stored although its answer was lost, comes without its number.
                assert said.get("duplicate") or said["seq"] == len(self.accepted[live]), (said, self.accepted[live])
                return
            assert status == 503, said
            await asyncio.sleep(TRY_S)
        raise AssertionError(f"{text} for {live} was never accepted: {said}")

    async def push_some(self, live: str, what: str, most: int, *, by: int | None = None) -> None:
        for i in range(self.rng.randint(1, most)):
            await self.push(live, f"{what} {i}", by=by)

    def fence(self, live: str, epoch: int) -> None:
        self.fences.append(Fence(live, epoch, len(self.accepted[live])))

    # -- what came of it

    def consumed(self, live: str) -> list[tuple[int, int, str]]:
        """Epoch, number and text, over all Workers that there ever were; in order per Worker."""
        return [one for worker in self.rig.all for one in worker.process.consumed(live)]

    def last(self, live: str) -> tuple[int, str]:
        return len(self.accepted[live]), self.accepted[live][-1]

    async def until_consumed(self, live: str, *, epoch: int = 0) -> None:
        """The last accepted item was consumed, by this epoch or a later one."""
        seq, text = self.last(live)
        await until_true(
            lambda: any(one[0] >= epoch and one[1:] == (seq, text) for one in self.consumed(live)),
            f"{text!r} (item {seq}) of {live} in epoch {epoch} or later; there is {self.consumed(live)[-8:]}",
        )

    async def until_acked(self, live: str, n: int | None = None) -> None:
        wanted = len(self.accepted[live]) if n is None else n
        give_up = asyncio.get_running_loop().time() + READY_S
        while asyncio.get_running_loop().time() < give_up:
            at = await self.at(live)
            if at.get("acked", -1) >= wanted:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{live} has not acked {wanted}: {at}; consumed {self.consumed(live)[-8:]}")

    async def settle(self, lives: Sequence[str] | None = None) -> None:
        """Everything accepted was acked; then look at all of it."""
        for live in [*self.accepted] if lives is None else lives:
            await self.until_acked(live)
            self.check(live)

    def check(self, live: str) -> None:
        accepted, by_epoch = self.accepted[live], defaultdict(list)
        for epoch, seq, text in self.consumed(live):
            assert accepted[seq - 1] == text, f"{live}: item {seq} is {accepted[seq - 1]!r}, consumed was {text!r}"
            by_epoch[epoch].append(seq)
        for epoch, seqs in by_epoch.items():
            assert seqs == [*range(seqs[0], seqs[0] + len(seqs))], f"{live}: epoch {epoch} consumed {seqs}"
        assert set().union(*by_epoch.values()) == {*range(1, len(accepted) + 1)}, f"{live}: {dict(by_epoch)}"
        for old, new in pairwise(sorted(by_epoch)):
            again = [seq for seq in by_epoch[old] if seq >= by_epoch[new][0]]
            assert len(again) <= self.rig.credit, f"{live}: {old} and {new} both consumed {again}"
        for fence in self.fences:
            for epoch, seqs in by_epoch.items():
                if fence.live == live and epoch < fence.epoch:
                    assert seqs[-1] <= fence.accepted, f"{live}: {epoch} consumed {seqs} in spite of {fence}"

    async def end(self) -> None:
        for live in self.ends:
            await self.rig.call("POST", f"{self.rig.dispatch}/v1/lives/{live}/end")
