"""Applications and operators: creates, pushes, interrupts, configurations, ends; moves, drains, cordons.

As docs/guides/faults.md asks, an application repeats a call under the same id until it knows what came of it.
So what it was told is exact: `accepted` is stored, `refused` is not, and `unknown` stays only where a live ended under
a call that was not answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from tests.chaos.deployment import DIGITAL_ID, HOSTILE_POOL, LENT_ID, POOL, Deployment
from tests.chaos.hostile_values import LENT, is_lent
from tests.chaos.runtime import CRASH, POISON

REQUEST_S = 4.0
AGAIN_S = 0.15
REFUSED = {"ENDED", "CLOSING", "NOT_FOUND"}
LIFE_S = (4.0, 60.0)
PUSH_MEAN_S = 0.35
OPERATE_MEAN_S = 0.8


@dataclass
class Told:
    """What an application knows about its live."""

    live: str
    created: bool = False
    ended: bool = False
    accepted: list[str] = field(default_factory=list)
    accepted_by: dict[str, int] = field(default_factory=dict)
    """The process that told so, by pid."""
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


@dataclass
class Course:
    """What became of a call that was repeated: how often it was sent and not answered, and who answered it at last."""

    unanswered: int = 0
    answered_by: int = 0


class Load:
    """All applications of a run, and its operators."""

    def __init__(self, deployment: Deployment, seed: int, http: aiohttp.ClientSession) -> None:
        self.told: dict[str, Told] = {}
        self.answers: Counter[str] = Counter()
        self.closing = False
        self._deployment = deployment
        self._seed = seed
        self._http = http
        self._made = 0
        self._rng = Random(f"operators {seed}")

    async def configure(self) -> None:
        """The Pool and the DigitalID, as soon as a replica answers."""
        await self._until_known(Random(0), "dispatch", "PUT", f"/v1/pools/{POOL}", {})
        body = {"pools": [{"pool": POOL}]}
        await self._until_known(Random(0), "dispatch", "PUT", f"/v1/digital-ids/{DIGITAL_ID}", body)
        if self._deployment.hostile:
            await self._until_known(Random(0), "dispatch", "PUT", f"/v1/pools/{HOSTILE_POOL}", {})
            pools = [{"pool": HOSTILE_POOL, "tier": 0}, {"pool": POOL, "tier": 1}]
            await self._until_known(Random(0), "dispatch", "PUT", f"/v1/digital-ids/{LENT_ID}", {"pools": pools})

    async def run(self) -> None:
        """Keep it up until `closing`; returns when every application has put its pen down."""
        size = self._deployment.size
        seats = [self._seat(n, "L") for n in range(size.lives)]
        seats += [self._seat(n, LENT) for n in range(size.lent if self._deployment.hostile else 0)]
        operators = [self._operate(self._move, 1.0), self._operate(self._cordon, 4.0), self._operate(self._drain, 5.0)]
        await asyncio.gather(*seats, *operators, self._tidy())

    # -- applications

    async def _seat(self, seat: int, letter: str) -> None:
        """One live after another."""
        await asyncio.sleep(seat * 0.03)
        n = 0
        while not self.closing:
            await self._live(f"{letter}{seat}-{n}", Random(f"live {self._seed} {seat} {n}"))
            n += 1

    async def _live(self, live: str, r: Random) -> None:
        told = self.told[live] = Told(live)
        body = {
            "live_id": live,
            "digital_id": LENT_ID if is_lent(f"default/{live}") else DIGITAL_ID,
            "priority": r.choice([0, 1, 1, 2]),
        }
        status, _ = await self._until_known(r, "dispatch", "POST", "/v1/lives?wait_s=1", body, give_up=True)
        told.created = status in (200, 201)
        if not told.created:
            return
        loop = asyncio.get_running_loop()
        until, n = loop.time() + r.uniform(*LIFE_S), 0
        while not self.closing and loop.time() < until and not told.ended:
            n += 1
            await self.push(told, r, item(r, f"{live}.{n}"))
            await asyncio.sleep(r.expovariate(1 / PUSH_MEAN_S))
        if not self.closing and not told.ended:
            await self._until_known(r, "dispatch", "POST", f"/v1/lives/{live}/end", {"after_pending": r.random() < 0.5})
            told.ended = True

    async def create(self, live: str) -> None:
        """A live that no application of this load knows."""
        body = {"live_id": live.partition("/")[2], "digital_id": DIGITAL_ID}
        await self._until_known(Random(0), "dispatch", "POST", "/v1/lives?wait_s=1", body)

    async def push(self, told: Told, r: Random, body: dict[str, Any]) -> None:
        """Push one item until its fate is known."""
        text = content(body)
        course = Course()
        status, _ = await self._until_known(
            r, "infer", "POST", f"/v1/lives/{told.live}/text", {**body, "request_id": text_id(body)}, course
        )
        if status == 200:
            told.accepted.append(text)
            told.accepted_by[text] = course.answered_by
        elif course.unanswered:
            told.unknown.add(text)
        else:
            told.refused.add(text)
        told.ended = told.ended or status != 200

    # -- operators

    async def _operate(self, what: Callable[[Random], Any], mean_s: float) -> None:
        while not self.closing:
            await asyncio.sleep(min(self._rng.expovariate(1 / (mean_s * OPERATE_MEAN_S)), 10.0))
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                await what(self._rng)

    async def _move(self, r: Random) -> None:
        live = r.choice([*self.told])
        status, at = await self._once(r, "dispatch", "GET", f"/v1/lives/{live}")
        if status == 200 and at["state"] != "ended":
            body = {"expected_epoch": at["epoch"]}
            self._count("move", await self._once(r, "dispatch", "POST", f"/v1/lives/{live}/reassign", body))

    async def _cordon(self, r: Random) -> None:
        if worker := await self._some_worker(r):
            self._count("cordon", await self._once(r, "dispatch", "POST", path_of(worker, "cordon"), {}))

    async def _drain(self, r: Random) -> None:
        if worker := await self._some_worker(r):
            body: dict[str, float] = {"boundary_wait_s": r.uniform(0.5, 4.0)} | (
                {"deadline_s": r.uniform(0, 4)} if r.random() < 0.3 else {}
            )
            self._count("drain", await self._once(r, "dispatch", "POST", path_of(worker, "drain"), body))

    async def _some_worker(self, r: Random) -> str | None:
        _, answer = await self._once(r, "dispatch", "GET", "/v1/workers?status=ready")
        ready = [each["worker"] for each in answer.get("workers", [])]
        return r.choice(ready) if len(ready) > self._deployment.size.workers // 2 else None

    async def _tidy(self) -> None:
        """What was cordoned or drained, by hand or for too many boots, is taken back after a while."""
        while not self.closing:
            await asyncio.sleep(6.0)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                await self.tidy_up()

    async def tidy_up(self) -> None:
        """Take back every cordon and drain; end the lives that their applications have done with. A store that was set
        back has forgotten their ends, and nobody else would ever end them."""
        await self._uncordon_all()
        _, answer = await self._once(self._rng, "dispatch", "GET", "/v1/lives?limit=1000")
        for live in [each["live_id"] for each in answer.get("lives", []) if each["state"] == "open"]:
            if live in self.told and self.told[live].ended:
                self._count("end", await self._once(self._rng, "dispatch", "POST", f"/v1/lives/{live}/end", {}))

    async def _uncordon_all(self) -> None:
        for status, method, verb in (("cordoned", "POST", "uncordon"), ("draining", "DELETE", "drain")):
            _, answer = await self._once(self._rng, "dispatch", "GET", f"/v1/workers?status={status}")
            for each in answer.get("workers", []):
                path = path_of(each["worker"], verb)
                body: dict[str, Any] | None = {} if method == "POST" else None
                self._count(
                    "uncordon" if method == "POST" else "undrain",
                    await self._once(self._rng, "dispatch", method, path, body),
                )

    # -- calls

    def _count(self, what: str, answered: tuple[int, Any]) -> None:
        self.answers[f"{what} {answered[0]}"] += 1

    def _urls(self, role: str) -> Sequence[str]:
        return self._deployment.dispatch if role == "dispatch" else self._deployment.infer

    async def _once(
        self, r: Random, role: str, method: str, path: str, body: Any = None, n: int | None = None
    ) -> tuple[int, Any]:
        urls = self._urls(role)
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        url = URL((r.choice(urls) if n is None else urls[n]) + path, encoded=True)
        headers = self._deployment.access.headers()
        async with self._http.request(method, url, json=body, timeout=timeout, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def _until_known(
        self,
        r: Random,
        role: str,
        method: str,
        path: str,
        body: Any,
        course: Course | None = None,
        *,
        give_up: bool = False,
    ) -> tuple[int, Any]:
        """Repeat the call as it is until the answer is final. `give_up`: not past the end of the storm."""
        course = course or Course()
        while True:
            n = r.randrange(len(self._urls(role)))
            try:
                status, answer = await self._once(r, role, method, path, body, n)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                # A connection that was refused carried nothing.
                course.unanswered += not isinstance(error, aiohttp.ClientConnectorError)
            else:
                code = answer.get("code", "") if isinstance(answer, dict) else ""
                self.answers[f"{method} {path.split('/')[-1].partition('?')[0]} {status} {code}".strip()] += 1
                if status < 300 or (status < 500 and status != 429) or code in REFUSED:
                    course.answered_by = self._deployment.roles[f"{role}-{n + 1}"].pid
                    return status, answer
                course.unanswered += status >= 500
            if give_up and self.closing:
                return 0, None
            await asyncio.sleep(AGAIN_S * r.uniform(0.5, 2.0))


def path_of(worker: str, verb: str) -> str:
    """A WorkerID has a `#` in it."""
    return f"/v1/workers/{quote(worker, safe='')}/{verb}"


def item(r: Random, name: str) -> dict[str, Any]:
    """The next item of a live: mostly text, at times an interrupt, a configuration, or what kills a runtime."""
    match r.choices(["text", "interrupt", "config", CRASH, POISON], [88, 5, 4, 2, 1])[0]:
        case "interrupt":
            return {"kind": "interrupt", "text": f"stop {name}"}
        case "config":
            return {"kind": "config", "config": {"name": name}}
        case "text":
            return {"text": f"say {name}", "boundary": r.random() < 0.4}
        case deadly:
            return {"text": f"{deadly} {name}"}


def content(body: dict[str, Any]) -> str:
    """The item as a runtime sees it."""
    return msgspec.json.encode(body["config"]).decode() if "config" in body else str(body["text"])


def text_id(body: dict[str, Any]) -> str:
    """The request's id: one per item."""
    return str(body["config"]["name"] if "config" in body else body["text"]).replace(" ", "-")
