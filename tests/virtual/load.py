"""The applications and operators of a virtual run, on the product's own Python client.

An application repeats a call under the same id until it knows what came of it, as the guide asks. Every second live is
pushed to on numbered streams, the others with requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, TypeVar

from dhsched.client import Client
from dhsched.errors import DhschedError, Refused, Unreachable
from dhsched.tasks import is_set_within
from dhsched.types import live_key
from tests.chaos.load import Told, content, item, text_id
from tests.virtual.beside import left_out
from tests.virtual.bounds import standstill_max_s
from tests.virtual.cells import Judges
from tests.virtual.deployment import DIGITAL_ID, Deployment
from tests.virtual.judges import TENANT
from tests.virtual.runtime import BROKEN_CONFIG, HANG, SLOW
from tests.virtual.spreading import LOOK_S, Spreading

T = TypeVar("T")

FINAL = frozenset({"ENDED", "CLOSING", "NOT_FOUND"})
LIFE_S = (120.0, 2_400.0)
AGAIN_S = 0.5
CALL_MAX_S, TIDY_CALLS = 120.0, 10
"""One call of the client, or one push on a stream, ends in this time with an answer or an error: that is the client's
deadline of 30 s, once more for an item that a stream stores with a request, and what a close and a handshake take. Who
tidies up makes several calls."""
OPERATE_MEAN_S, SMALL_OPERATE_MEAN_S = 120.0, 1_200.0
READ_MEAN_S = 15.0
READ_LATEST = 24  # Lives that are read now and then: the latest ones, ended or not.
TIDY_S, SMALL_TIDY_S = 45.0, 600.0
BURSTS = (1, 1, 1, 2, 3, 8)
HANG_SHARE = 0.01
SLOW_SHARE = 0.02
BROKEN_SHARE = 0.003  # Of items: configurations that no runtime lives with.
IMPATIENT_SHARE = 0.06  # Of users: those who interrupt again and again.
IMPATIENT_S = 2.0
GUEST_MEAN_S = 400.0
GUEST_S = (20.0, 120.0)  # Until the DigitalID of a guest is deleted; and then, until it is ended:
GUEST_STAYS_S = (120.0, 1_200.0)
DENSE_LIFE_S = (15.0, 240.0)
DENSE_GUEST_MEAN_S, DENSE_GUEST_S, DENSE_GUEST_STAYS_S = 15.0, (3.0, 15.0), (160.0, 400.0)
DENSE_IMPATIENT_SHARE, DENSE_HANG_SHARE, DENSE_BROKEN_SHARE = 0.2, 0.02, 0.01
HURRY_S = (0.05, 1.0)  # Between two pushes of an application that hurries.
HURRIES = ("end", "end", "interrupts", "pushes", "pushes", "end", "end", "interrupts", "pushes", "slow")
"""What the application of a live does while faults are aimed at the live. Slow items are in the hands of one generation
for so long that several can end over the same one."""
HURRY_SLOW_S = (4.0, 12.0)
LIVES_MAX = 1_000  # Of the tenant, with several cells: counted over all of them, and never reached.
PROBED = "P-"
"""Ids that begin so are of lives of probes, which operators leave alone."""


class Load:
    """All applications and operators. `told` has what the applications know. `readers` are clients of one replica."""

    def __init__(
        self, deployment: Deployment, client: Client, readers: Sequence[Client], judges: Judges, seed: int
    ) -> None:
        self.told: dict[str, Told] = {}
        self.answers: Counter[str] = Counter()
        self.pushes = 0
        self._closed = asyncio.Event()
        self._roused: dict[str, asyncio.Event] = {}
        """By open live: set when its application goes on at once."""
        self._hurries: dict[str, tuple[str, float]] = {}
        """By live: what its application does in a hurry, and until when."""
        self.last_error = ""
        """What the last call was refused with that was repeated, for the report of an application that waits."""
        self._deployment, self._client, self._seed = deployment, client, seed
        self._readers, self._judges, self._reads = readers, judges, Random(f"readers {seed}")
        self._spreading = Spreading(deployment, client, judges.beside, seed) if judges.several else None
        self._note = deployment.note
        self._waits: dict[object, tuple[str, float]] = {}
        """Calls of the client that have not ended, and when they have at the latest."""

    @property
    def closing(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Let every application come to its end; who pauses goes on at once."""
        self._closed.set()
        for roused in self._roused.values():
            roused.set()

    def look(self) -> None:
        """Find calls that do not end. This is called every few seconds."""
        now = self._deployment.loop.now
        for one, (what, ends_by) in [*self._waits.items()]:
            if now > ends_by:
                self._deployment.wrong(f"waits: {what} has no answer and no error")
                del self._waits[one]

    @contextmanager
    def _ends(self, what: str, calls: int = 1) -> Iterator[None]:
        """A wait for so many calls, which must end whatever the faults are."""
        one = object()
        self._waits[one] = what, self._deployment.loop.now + calls * CALL_MAX_S
        try:
            yield
        finally:
            self._waits.pop(one, None)

    def hurry(self, live: str, number: int, for_s: float) -> None:
        """Let the application of a live do one of HURRIES, from now on and for so long."""
        if live in self._roused:
            self._hurries[live] = (HURRIES[number % len(HURRIES)], self._deployment.loop.now + for_s)
            self._roused[live].set()

    def _hurried(self, live: str) -> str:
        """What the application of a live does in a hurry now."""
        does, until = self._hurries.get(live, ("", 0.0))
        return does if self._deployment.loop.now < until else ""

    async def _rest(self, live: str, seconds: float) -> None:
        """Pause, unless the live's application has to go on at once."""
        await is_set_within(seconds, self._roused[live])
        if not self.closing:
            self._roused[live].clear()

    async def _pause(self, seconds: float) -> None:
        await is_set_within(seconds, self._closed)

    async def configure(self) -> None:
        """Every Pool, and a DigitalID that may use all of them."""
        pools = sorted({*self._deployment.pool_of.values()})
        for pool in pools:
            await self._until_known(partial(self._client.put_pool, pool, {}))
        body = {"pools": [{"pool": pool, "tier": n} for n, pool in enumerate(pools)]}
        await self._until_known(lambda: self._client.put_digital_id(DIGITAL_ID, body))
        if self._judges.several:
            put = partial(self._client._dispatch.call, "PUT", "tenants", TENANT, body={"lives_max": LIVES_MAX})
            await self._until_known(put)

    async def run(self) -> None:
        """Go on until `closing`, and until every application knows what came of its last call."""
        seats = [self._seat(n) for n in range(self._deployment.swarm.lives)]
        others = [self._spread(self._spreading)] if self._spreading is not None else []
        await asyncio.gather(*seats, self._operate(), self._tidy(), self._read(), self._guests(), *others)

    # -- applications

    async def _seat(self, seat: int) -> None:
        """One live after another."""
        n = 0
        while not self.closing:
            await self._live(f"L{seat}-{n}", Random(f"live {self._seed} {seat} {n}"), numbered=(seat + n) % 2 == 0)
            n += 1
            await asyncio.sleep(1.0)

    async def _live(self, live: str, r: Random, *, numbered: bool) -> None:
        told = Told(live)
        priority = r.choice([0, 1, 1, 2])
        dense, asked_at = self._deployment.swarm.dense, self._deployment.loop.now
        impatient = r.random() < (DENSE_IMPATIENT_SHARE if dense else IMPATIENT_SHARE)
        create = partial(self._client.create, DIGITAL_ID, live_id=live, priority=priority, wait_s=5)
        made = await self._until_known(lambda: self._judged(live, create), "create", live, give_up=True)
        self._in_time(f"the create of {live}", asked_at)
        if made is None:
            return
        told.created = True
        self.told[live] = told
        await self._get(live)
        self._roused[live] = asyncio.Event()
        await self._speak(told, r, numbered=numbered, impatient=impatient)
        del self._roused[live]
        if not self.closing and not told.ended:
            after_pending = r.random() < 0.5
            end = partial(self._client.end, live, after_pending=after_pending)
            await self._until_known(lambda: self._judged(live, end), "end", live)
            told.ended = True
            await self._get(live)

    async def _speak(self, told: Told, r: Random, *, numbered: bool, impatient: bool) -> None:
        """Push to a live until it is to end, or has ended."""
        live, loop, swarm = told.live, self._deployment.loop, self._deployment.swarm
        until = loop.now + r.uniform(*(DENSE_LIFE_S if swarm.dense else LIFE_S))
        push = self._push_on_stream if numbered else self._push
        while not self.closing and loop.now < until and not told.ended:
            if (does := self._hurried(live)) == "end":
                return
            interrupts, slow = impatient or does == "interrupts", does == "slow"
            await push(told, r, 1 if interrupts or slow else r.choice(BURSTS), impatient=interrupts, slow=slow)
            pause_s = r.expovariate(1 / swarm.push_mean_s)
            hurry_s = HURRY_SLOW_S if slow else HURRY_S
            await self._rest(live, r.uniform(*hurry_s) if does else IMPATIENT_S if impatient else pause_s)

    async def _push(self, told: Told, r: Random, count: int, *, impatient: bool, slow: bool) -> None:
        for _ in range(count):
            await self.push_one(told, self._item(told, r, impatient=impatient, slow=slow))
            if told.ended:
                return

    async def push_one(self, told: Told, body: dict[str, Any]) -> None:
        """Push an item until it is known what came of it, and write that down."""
        answer = await self._until_known(partial(self._send, told.live, body), "push", told.live)
        self._fate(told, content(body), accepted=answer is not None)

    async def _push_on_stream(self, told: Told, r: Random, count: int, *, impatient: bool, slow: bool) -> None:
        """A stream ends where an item's fate stays unknown; the next burst has another one."""
        text = ""
        try:
            async with self._client.stream(told.live) as stream:
                for _ in range(count):
                    body = self._item(told, r, impatient=impatient, slow=slow)
                    text = content(body)
                    beside = self._judges.beside.call("push", told.live)
                    with self._ends(f"a push on a stream to {told.live}"), beside:
                        await stream.push(
                            body.get("text", ""),
                            kind=body.get("kind", "text"),
                            boundary=body.get("boundary", False),
                            config=body.get("config"),
                        )
                    self._fate(told, text, accepted=True)
                    text = ""
        except DhschedError as error:
            self._count("stream", error)
            if text:
                told.unknown.add(text)
                told.ended = told.ended or (isinstance(error, Refused) and error.code in FINAL)

    def _item(self, told: Told, r: Random, *, impatient: bool, slow: bool) -> dict[str, Any]:
        self.pushes += 1
        name, drawn = f"{told.live}.{self.pushes}", r.random()
        dense = self._deployment.swarm.dense
        hangs, breaks = (DENSE_HANG_SHARE, DENSE_BROKEN_SHARE) if dense else (HANG_SHARE, BROKEN_SHARE)
        hangs *= 3 if impatient else 1
        if slow:
            return {"text": f"{SLOW} {name}"}
        if drawn < hangs:
            return {"text": f"{HANG} {name}"}
        if drawn < hangs + breaks:
            return {"kind": "config", "config": {"name": name, BROKEN_CONFIG: True}}
        if drawn < hangs + breaks + SLOW_SHARE:
            return {"text": f"{SLOW} {name}"}
        if impatient and drawn < 0.7:
            return {"kind": "interrupt", "text": f"stop {name}"}
        return item(r, name)

    def _send(self, live: str, body: dict[str, Any]) -> Awaitable[Any]:
        client, request_id = self._client, text_id(body)
        if "config" in body:
            return client.configure(live, body["config"], request_id=request_id)
        if body.get("kind") == "interrupt":
            return client.interrupt(live, body["text"], request_id=request_id)
        return client.push(live, body["text"], boundary=body.get("boundary", False), request_id=request_id)

    def _fate(self, told: Told, text: str, *, accepted: bool) -> None:
        self._note(f"told {told.live} {text} {accepted}")
        if accepted:
            told.accepted.append(text)
        else:
            # The client repeats by itself: an earlier try may have been stored before the live ended.
            told.unknown.add(text)
            told.ended = True

    def _in_time(self, what: str, asked_at: float) -> None:
        """An answer that an application waits for comes within the product's limits: there is a slot for every live."""
        took_s, most_s = self._deployment.loop.now - asked_at, standstill_max_s(self._deployment.swarm)
        if took_s > most_s:
            self._deployment.wrong(f"waits: {what} took {took_s:.0f} s, more than {most_s:.0f} s")

    async def _guests(self) -> None:
        """Now and then a live of a DigitalID that is deleted while the live is there."""
        r = Random(f"guests {self._seed}")
        dense, n = self._deployment.swarm.dense, 0
        while not self.closing:
            await self._pause(r.expovariate(1 / (DENSE_GUEST_MEAN_S if dense else GUEST_MEAN_S)))
            if self.closing:
                return
            n += 1
            guest, body = f"G{n}", {"pools": [{"pool": pool} for pool in sorted({*self._deployment.pool_of.values()})]}
            await self._once("guest", partial(self._client.put_digital_id, guest, body))
            await self._once("guest", partial(self._client.create, guest, live_id=guest))
            await self._pause(r.uniform(*(DENSE_GUEST_S if dense else GUEST_S)))
            delete = partial(self._client._dispatch.call, "DELETE", "digital-ids", guest, query={"force": "true"})
            await self._once("guest", delete)
            await self._pause(r.uniform(*(DENSE_GUEST_STAYS_S if dense else GUEST_STAYS_S)))
            await self._until_known(partial(self._client.end, guest))

    # -- operators

    async def _operate(self) -> None:
        r = Random(f"operators {self._seed}")
        while not self.closing:
            small = self._deployment.swarm.small
            await self._pause(r.expovariate(1 / (SMALL_OPERATE_MEAN_S if small else OPERATE_MEAN_S)))
            open_lives = [live for live, told in self.told.items() if not told.ended and not live.startswith(PROBED)]
            act, live = r.random(), r.choice(open_lives) if open_lives else ""
            worker = r.choice(self._deployment.workers).name
            if act < 0.6 and live:
                await self._once("reassign", partial(self._judged, live, partial(self._client.reassign, live)))
                await self._get(live)
            elif act < 0.9:
                await self._once("drain", partial(self._drain, worker), TIDY_CALLS)

    async def _drain(self, name: str) -> None:
        async for row in self._client.workers(status="ready"):
            if row.worker.startswith(f"{name}#"):
                await self._client.drain(row.worker, deadline_s=None if self._deployment.swarm.small else 10.0)

    async def _tidy(self) -> None:
        """What was cordoned or drained is taken back after a while, by hand as operators do it."""
        while not self.closing:
            await self._pause(SMALL_TIDY_S if self._deployment.swarm.small else TIDY_S)
            await self._once("tidy", self.tidy_up, TIDY_CALLS)

    async def tidy_up(self) -> None:
        """Take back every cordon and every drain, and end the lives whose end the store has forgotten."""
        calls = self._client._dispatch
        for status, method, verb in (("cordoned", "POST", "uncordon"), ("draining", "DELETE", "drain")):
            for row in await self._listed(self._client.workers(status=status)):
                await calls.call(method, "workers", row.worker, verb, body={} if method == "POST" else None)
        for live in [row.live_id for row in await self._listed(self._client.lives(state="open"))]:
            if live in self.told and self.told[live].ended:
                await self._client.end(live)
        if self._spreading is not None:
            await self._spreading.look()

    async def _listed(self, rows: AsyncIterator[T]) -> list[T]:
        """Return a list of what all cells have, without those that are away: an operator goes on with the others."""
        found: list[T] = []
        try:
            with self._judges.beside.call("list"):
                async for row in rows:
                    found.append(row)
        except Unreachable as error:
            if not left_out(error):
                raise
        return found

    async def _spread(self, spreading: Spreading) -> None:
        while not self.closing:
            await self._pause(LOOK_S)
            await self._once("spread", spreading.look, TIDY_CALLS)
            await self._once("anywhere", spreading.create_anywhere, TIDY_CALLS)

    async def _once(self, what: str, call: Callable[[], Awaitable[Any]], calls: int = 1) -> None:
        try:
            with self._ends(f"the call of an operator or a reader ({what})", calls):
                await call()
            self.answers[what] += 1
        except DhschedError as error:
            self._count(what, error)

    # -- readers

    async def _read(self) -> None:
        """Read one of the latest lives through one replica and then through another one."""
        while not self.closing:
            await self._pause(self._reads.expovariate(1 / READ_MEAN_S))
            if self.told:
                live = self._reads.choice([*self.told][-READ_LATEST:])
                await self._get(live)
                await self._get(live)

    async def _get(self, live: str) -> None:
        n = self._reads.randrange(len(self._readers))
        get = partial(self._beside, "get", live, partial(self._readers[n].get, live))
        await self._once("get", partial(self._judged, live, get, f"d{n + 1}"))

    def _judged(self, live: str, call: Callable[[], Awaitable[Any]], where: str = "Dispatch") -> Awaitable[Any]:
        return self._judges.ask(live_key(TENANT, live), where, call)

    async def _beside(self, kind: str, live: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that is answered whatever is wrong with other cells than that of its live."""
        with self._judges.beside.call(kind, live):
            return await call()

    # -- calls

    async def _until_known(
        self, call: Callable[[], Awaitable[Any]], kind: str = "", live: str = "", *, give_up: bool = False
    ) -> Any:
        """Repeat a call until its answer is final; return None where it was refused for good. `kind` is for a call
        about one live."""
        while True:
            try:
                with self._ends("a call of an application"):
                    return await (self._beside(kind, live, call) if kind else call()) or True
            except DhschedError as error:
                self._count("call", error)
                self.last_error = str(error)
                if isinstance(error, Refused) and error.code in FINAL:
                    return None
            if give_up and self.closing:
                return None
            await asyncio.sleep(AGAIN_S)

    def _count(self, what: str, error: DhschedError) -> None:
        code = error.code if isinstance(error, Refused) else type(error).__name__
        self.answers[f"{what} {code}"] += 1
        if code == "INTERNAL":
            self._deployment.wrong(f"process: {what} was answered with {error}")
        self._note(f"refused {what} {code}")
