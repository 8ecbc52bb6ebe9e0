"""What a room asks others: Dispatch, who may publish and who owns a live; an Infer-Controller, to take input.

Each question has a deadline and goes to the next replica when one does not answer, or answers that it cannot serve: it
may be busy, or cut off from the store alone. What a live is, is asked once for all who look at it within OWNER_S.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
import structlog

from dhsched.access.minting import own_minter
from dhsched.errors import DhschedError
from dhsched.room.settings import RoomSettings
from dhsched.types import Generation
from dhsched.web import Problem

log = structlog.get_logger(__name__)

OWNER_S = 0.5
OWNERS_MAX = 10_000
REPLY_BYTES_MAX = 1024 * 1024
UNAVAILABLE = 503  # Of one replica; another may do.


class Publishing(msgspec.Struct, frozen=True):
    """Dispatch's answer about a publish token: the generation it is for, and the current one."""

    live: str
    worker: str
    epoch: int
    current: Current
    cause: str
    state: str

    @property
    def generation(self) -> Generation:
        return Generation(self.worker, self.epoch)


class Current(msgspec.Struct, frozen=True):
    worker: str
    epoch: int


class Owner(msgspec.Struct, frozen=True):
    """Of Dispatch's answer about a live, what viewers are told."""

    live_id: str
    digital_id: str
    state: str
    worker: str
    epoch: int
    active: bool
    cause: str
    pending: int


class Answer(msgspec.Struct):
    """A status and a document, whichever they are."""

    status: int
    document: Any


class Upstream:
    """The other roles, as this room sees them."""

    def __init__(self, http: aiohttp.ClientSession, settings: RoomSettings) -> None:
        self._http = http
        self._settings = settings
        key, every = settings.shown_key(), {*settings.dispatch_urls, *settings.infer_urls}
        self._minters = {url: own_minter(http, url, key, role="room", tenant=settings.tenant) for url in every}
        self._lacking: set[str] = set()
        self._owners: dict[str, tuple[float, asyncio.Task[Answer]]] = {}

    async def publishing(self, token: str) -> Publishing:
        """Whom a publish token is for and who is current. Raises UNAUTHORIZED, NOT_FOUND, NOT_READY."""
        answer = await self._ask("POST", self._settings.dispatch_urls, "/v1/publishing", {"token": token})
        if answer.status == 200:
            return msgspec.convert(answer.document, Publishing)
        raise as_problem(answer)

    async def owner(self, live_id: str) -> Owner:
        """Where a live is, at most OWNER_S old. Raises NOT_FOUND, NOT_READY."""
        loop = asyncio.get_running_loop()
        asked_at, asking = self._owners.get(live_id, (float("-inf"), None))
        if asking is None or loop.time() - asked_at > OWNER_S:
            if len(self._owners) >= OWNERS_MAX:
                self._owners = {key: each for key, each in self._owners.items() if loop.time() - each[0] <= OWNER_S}
            asking = asyncio.create_task(self._ask("GET", self._settings.dispatch_urls, f"/v1/lives/{live_id}"))
            self._owners[live_id] = (loop.time(), asking)
        answer = await asyncio.shield(asking)
        if answer.status == 200:
            return msgspec.convert(answer.document, Owner)
        raise as_problem(answer)

    async def push(self, live_id: str, item: Mapping[str, Any]) -> Answer:
        # Two controllers may be asked to store it, so it has an id.
        item = {"request_id": f"r-{secrets.token_hex(10)}", **item}
        return await self._ask("POST", self._settings.infer_urls, f"/v1/lives/{live_id}/text", item)

    async def reachable(self) -> Sequence[str]:
        """What is missing for this room to be of use."""
        answer = await self._ask("GET", self._settings.dispatch_urls, "/healthz")
        return () if answer.status == 200 else (str(answer.document.get("detail", "Dispatch does not answer")),)

    async def _ask(self, method: str, urls: Sequence[str], path: str, body: Any = None) -> Answer:
        """The answer of the first that can give one; else a 503, of the last one that said so, or like one of ours."""
        timeout = aiohttp.ClientTimeout(total=self._settings.deadline_s)
        failed: list[str] = []
        cannot: Answer | None = None
        for url in urls:
            try:
                answer = await self._ask_one(method, url, path, body, timeout)
                if answer.status == 401:
                    # Our own token may be void, or what we asked about. With a new token only the second is left.
                    self._minters[url].forget()
                    answer = await self._ask_one(method, url, path, body, timeout)
                if answer.status == 401 and method == "GET" and not self._minters[url].key:
                    self._lacks_key(url)
                if answer.status != UNAVAILABLE:
                    return answer
                cannot = answer
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, DhschedError) as error:
                failed.append(f"{url} ({str(error) or type(error).__name__})")
        if cannot is not None:
            return cannot
        problem = Problem("NOT_READY", f"nobody answers at {', '.join(failed)}; try again later")
        return Answer(problem.kind.status, problem.document())

    def _lacks_key(self, url: str) -> None:
        """Said once for each: viewers ask many times a second."""
        if url not in self._lacking:
            self._lacking.add(url)
            remedy = "set DHSCHED_ROOM_KEY or --key-file to an API key of role room"
            log.error("this room has no key, and can show nothing", asked=url, remedy=remedy)

    async def _ask_one(self, method: str, url: str, path: str, body: Any, timeout: aiohttp.ClientTimeout) -> Answer:
        shown = await self._minters[url].headers()
        async with self._http.request(method, url + path, json=body, timeout=timeout, headers=shown) as response:
            return Answer(response.status, msgspec.json.decode(await response.content.read(REPLY_BYTES_MAX)))


def as_problem(answer: Answer) -> Problem:
    """A refusal passed on as it came."""
    document = answer.document if isinstance(answer.document, dict) else {}
    code = str(document.get("code", ""))
    known = code in ("UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND", "BUSY", "STORE_UNAVAILABLE", "BAD_REQUEST")
    return Problem(code if known else "NOT_READY", str(document.get("detail", f"Dispatch answered {answer.status}")))
