"""The room's calls: Dispatch, about who may publish and who owns a live; an Infer-Controller, to take input.

Each replica is asked once, and has `deadline_s` to answer (client/http.py). Calls about one live within OWNER_S share
one answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

import aiohttp
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dhsched.access.viewer_tokens import public_keys
from dhsched.client.credentials import own_key
from dhsched.client.http import Replicas
from dhsched.client.models.base import UNSET
from dhsched.client.models.input import PushText
from dhsched.client.models.lives import Live, PublishingOut, ShowPublishing
from dhsched.client.models.viewers import ViewerKeys
from dhsched.errors import DhschedError, Refused, Unreachable
from dhsched.room.settings import RoomSettings
from dhsched.settings import key_of
from dhsched.web import Problem

log = structlog.get_logger(__name__)

OWNER_S = 0.5  # An older answer about a live is not used again.
OWNERS_MAX = 10_000  # At this many remembered answers, those older than OWNER_S are dropped.
PASSED_ON = ("UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND", "BUSY", "STORE_UNAVAILABLE", "BAD_REQUEST")
"""Refusals that mean the same to the room's callers. Any other refusal becomes NOT_READY."""


class Upstream:
    """Dispatch and the Infer-Controllers, as this room calls them."""

    def __init__(self, http: aiohttp.ClientSession, settings: RoomSettings) -> None:
        credentials, try_s = own_key(key_of(settings), "room", tenant=settings.tenant), settings.deadline_s

        def replicas(role: str, urls: Sequence[str]) -> Replicas:
            return Replicas(role, urls, http, credentials, deadline_s=try_s * len(urls), try_s=try_s, once=True)

        self._dispatch = replicas("Dispatch", settings.dispatch_urls)
        self._infer = replicas("Infer-Controller", settings.infer_urls)
        self._lacking: set[str] = set()
        self._owners: dict[str, tuple[float, asyncio.Task[Live | DhschedError]]] = {}

    async def publishing(self, token: str) -> PublishingOut:
        """Return a publish token's generation and the current one. Raise UNAUTHORIZED, NOT_FOUND, NOT_READY."""
        try:
            return await self._dispatch.read(PublishingOut, "POST", "publishing", body=ShowPublishing(token))
        except DhschedError as error:
            raise as_problem(error, self._dispatch) from error

    async def viewer_keys(self, kid: str) -> dict[str, Ed25519PublicKey]:
        """Return the keys that verify viewer tokens now; `kid` names one that is needed. Raise NOT_READY and others."""
        try:
            found = await self._dispatch.read(ViewerKeys, "GET", "viewer-keys", query={"kid": kid or None})
            return public_keys((key.kid, key.x) for key in found.keys)
        except ValueError as error:
            raise Problem("NOT_READY", f"Dispatch sent keys that cannot be read: {error}") from error
        except DhschedError as error:
            self._note_missing_key(error)
            raise as_problem(error, self._dispatch) from error

    async def owner(self, live_id: str) -> Live:
        """Return a live, at most OWNER_S old. Raise NOT_FOUND, NOT_READY."""
        loop = asyncio.get_running_loop()
        asked_at, asking = self._owners.get(live_id, (float("-inf"), None))
        if asking is None or loop.time() - asked_at > OWNER_S:
            if len(self._owners) >= OWNERS_MAX:
                self._owners = {key: each for key, each in self._owners.items() if loop.time() - each[0] <= OWNER_S}
            asking = asyncio.create_task(self._find(live_id))
            self._owners[live_id] = (loop.time(), asking)
        if isinstance(found := await asyncio.shield(asking), DhschedError):
            raise as_problem(found, self._dispatch) from found
        return found

    async def push(self, live_id: str, item: PushText) -> bytes:
        """Store a viewer's item; return the controller's answer as it is. Raise its refusal, or NOT_READY."""
        if item.request_id is UNSET:
            item.request_id = f"r-{secrets.token_hex(10)}"  # The item may be sent to two controllers.
        try:
            return await self._infer.call("POST", "lives", live_id, "text", body=item)
        except Refused:
            raise
        except DhschedError as error:
            raise refusal_in(error) or as_problem(error, self._infer) from error

    async def reachable(self) -> Sequence[str]:
        """Return why the room is not ready; empty if Dispatch answers."""
        try:
            await self._dispatch.ask("GET", "/healthz")
        except DhschedError as error:
            return (as_problem(error, self._dispatch).detail,)
        return ()

    async def _find(self, live_id: str) -> Live | DhschedError:
        """Return the live or an error: a value, because several callers may await it, or none any more."""
        try:
            return await self._dispatch.read(Live, "GET", "lives", live_id)
        except DhschedError as error:
            self._note_missing_key(error)
            return error

    def _note_missing_key(self, error: DhschedError) -> None:
        """Log once per server that it refused this room for want of a key: viewers ask many times a second."""
        url = self._dispatch.url
        lacks = isinstance(error, Refused) and error.status == 401 and not self._dispatch.key(url)
        if lacks and url not in self._lacking:
            self._lacking.add(url)
            remedy = "set DHSCHED_ROOM_KEY or --key-file to an API key of role room"
            log.error("this room has no API key, and can show no live", asked=url, remedy=remedy)


def refusal_in(error: DhschedError) -> Refused | None:
    """Return the replica's refusal, if the error contains one."""
    return error if isinstance(error, Refused) else error.refused if isinstance(error, Unreachable) else None


def as_problem(error: DhschedError, replicas: Replicas) -> Problem:
    """Return a refusal with its code, if callers know that code; else NOT_READY."""
    if (refused := refusal_in(error)) is None:
        troubles = error.troubles if isinstance(error, Unreachable) else {replicas.url: str(error)}
        asked = ", ".join(f"{url} ({trouble})" for url, trouble in troubles.items())
        return Problem("NOT_READY", f"no replica answers at {asked}; try again later")
    detail = str(refused.problem.get("detail", f"Dispatch answered {refused.status}"))
    return Problem(refused.code if refused.code in PASSED_ON else "NOT_READY", detail)
