"""The room's gate: checks the viewer token of every request of a viewer.

A room verifies tokens by itself, with public keys that it fetches from Dispatch: at the start, every KEYS_S, and when a
token names a key that the room does not know. While Dispatch does not answer, the keys that the room has stay valid.
A 401 has the same message for every reason; a valid token that is for another live, or lacks a grant, is answered 403.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dhsched.access.gate import bearer
from dhsched.access.viewer_tokens import kid_of, verify
from dhsched.access.viewers import ANYBODY, Grant, VerifiedViewer
from dhsched.errors import Forbidden, Unauthorized
from dhsched.room.settings import RoomSettings
from dhsched.room.upstream import Upstream
from dhsched.tasks import cancel
from dhsched.types import live_key
from dhsched.web import Problem

log = structlog.get_logger(__name__)

KEYS_S = 5.0  # Time between two reads of the keys: a key that was dropped verifies for so long.
REREAD_MIN_S = 1.0  # A read for an unknown key waits until the last read is this old.
WAITING_MAX = 256  # Past this many requests that wait for a read, a request with an unknown key is answered BUSY.
UNAUTHORIZED = (
    "this needs a valid viewer token: an app mints one at POST /v1/lives/{live_id}/viewer-tokens of Dispatch "
    "(`dhsched live watch-link`); send it as Authorization: Bearer TOKEN, or open a link with it"
)


class ViewerGate:
    """The gate of one room process."""

    def __init__(self, settings: RoomSettings, upstream: Upstream) -> None:
        self.needs_tokens = settings.access == "keys"
        self._tenant = settings.tenant
        self._upstream = upstream
        self._keys: Mapping[str, Ed25519PublicKey] = {}
        self._read_at = float("-inf")
        self._trouble: Problem | None = None
        self._next: asyncio.Task[None] | None = None
        self._waiting = 0

    async def admit(self, headers: Mapping[str, str], live_id: str, *grants: Grant) -> VerifiedViewer:
        """Return the viewer whose token allows `grants` in this live. Raise Unauthorized or Forbidden, or NOT_READY if
        the keys could not be read."""
        if not self.needs_tokens:
            return ANYBODY
        token = bearer(headers.get("Authorization", ""))
        kid = kid_of(token)
        if kid not in self._keys and kid.isascii() and kid.isdecimal() and len(kid) <= 16:
            await self._read_for(kid)
        if (found := verify(token, self._keys)) is None:
            raise Unauthorized(UNAUTHORIZED)
        if found.viewer.live != live_key(self._tenant, live_id):
            raise Forbidden(f"this viewer token is for another live than {live_id}")
        if lacking := [grant for grant in grants if grant not in found.viewer.grants]:
            raise Forbidden(f"this viewer token does not grant to {' or to '.join(lacking)}")
        return found

    def knows(self, kid: str) -> bool:
        """Return whether tokens that this key signed are valid; always where no tokens are needed."""
        return not self.needs_tokens or kid in self._keys

    async def read(self, kid: str = "") -> None:
        """Read the public keys. If Dispatch does not answer, keep those of the last read."""
        self._read_at = asyncio.get_running_loop().time()
        try:
            self._keys = await self._upstream.viewer_keys(kid)
            self._trouble = None
        except Problem as problem:
            if self._trouble is None:
                log.warning("the keys of viewer tokens cannot be read; known ones stay valid", reason=problem.detail)
            self._trouble = problem

    async def _read_for(self, kid: str) -> None:
        """Wait for a read that begins after this call, and raise NOT_READY if it fails. Requests share a read."""
        if self._waiting >= WAITING_MAX:
            raise Problem("BUSY", f"{self._waiting} requests wait for the keys of viewer tokens; try again later")
        if self._next is None:
            self._next = asyncio.create_task(self._read_later(kid))
        self._waiting += 1
        try:
            await asyncio.shield(self._next)
        finally:
            self._waiting -= 1
        if self._trouble is not None and kid not in self._keys:
            raise Problem("NOT_READY", f"a viewer token cannot be verified now: {self._trouble.detail}")

    async def _read_later(self, kid: str) -> None:
        await asyncio.sleep(max(0.0, self._read_at + REREAD_MIN_S - asyncio.get_running_loop().time()))
        self._next = None  # A later request needs another read: its key may be newer.
        await self.read(kid)

    async def close(self) -> None:
        await cancel(self._next)
