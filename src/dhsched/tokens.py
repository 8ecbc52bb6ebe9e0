"""Tokens of Workers: a boot token proves which Worker connects, a publish token which generation publishes.

A boot token is issued with the WorkerID at registration. The token is a JWT signed (HS256, nothing else is accepted)
with a secret of the cell that only Dispatch and Infer replicas can read: `boot:<n>` of the key ring (access/ring.py).
`kid` names the secret. `dhsched key rotate --what boot` makes a new secret: the previous one still verifies until the
next rotation, and the tokens that it signed are renewed when half of their lifetime is over.

A publish token is for one generation, `(live, Worker, epoch)`, and is issued with its claim. It proves that the
generation was issued, not that it is current: the room asks Dispatch for that (dispatch/api/publishing.py).

Both kinds name the API key that the Worker registered with. Both are void once that key has been revoked, and while the
Worker's name is banned (`KeyRing.refusal_of`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from dhsched.access.api_tokens import TOKEN_CHARS_MAX
from dhsched.access.ring import KeyRing
from dhsched.errors import BadId, BadToken
from dhsched.types import Generation, check_live, check_worker, name_of

ALGORITHM = "HS256"
AUDIENCE = "dhsched-worker"
PUBLISH_AUDIENCE = "dhsched-publish"
TTL_S = 24 * 3600.0  # A boot's token ends after this; its link renews it before.
PUBLISH_TTL_S = 30 * TTL_S  # Long, because a generation's token is renewed only when the generation pulls again.
LEEWAY_S = 30.0  # A token is accepted for this long after its end, because the clocks of replicas differ.
REFRESH_MIN_S = 1.0  # A token with an unknown secret is refused without a read if the last read was this recent.


@dataclass(frozen=True, slots=True)
class Boot:
    """The Worker's process that a boot token was issued to. A Worker link takes its WorkerID only from here."""

    worker: str
    boot: str
    name: str
    pool: str
    capacity: int
    key: str = ""
    """Id of the API key that the Worker registered with; empty where access is open."""
    cell: str = ""
    """The cell that the Worker registered in; empty where there is only one. Two cells may give out one WorkerID."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """The generation as which a publish token allows to publish, while the Worker's API key `key` is valid."""

    live: str
    generation: Generation
    key: str = ""


@dataclass(frozen=True, slots=True)
class Proven:
    """The boot of a valid token, and whether the token should be renewed."""

    boot: Boot
    renew: bool


class Tokens:
    """Issues and verifies the tokens of a cell, with the secrets of its key ring."""

    def __init__(self, ring: KeyRing, *, ttl_s: float = TTL_S, clock: Callable[[], float] = time.time) -> None:
        self._ring = ring
        self._ttl_s = ttl_s
        self._clock = clock
        self._refreshed_at = float("-inf")

    def issue(self, boot: Boot) -> str:
        """Return a token for this boot, signed with the newest secret."""
        claims = {"boot": boot.boot, "name": boot.name, "pool": boot.pool, "capacity": boot.capacity, "key": boot.key}
        claims |= {"cell": boot.cell} if boot.cell else {}
        return self._sign(AUDIENCE, boot.worker, self._ttl_s, claims)

    async def read(self, token: str) -> Proven:
        """Return the boot that the token was issued to, or raise BadToken."""
        claims = await self._claims(token, AUDIENCE)
        boot = _boot(claims)
        await self._refuse_ended(key=boot.key, name=boot.name)
        return Proven(boot, renew=self._clock() > (claims["iat"] + claims["exp"]) / 2)

    def refusal_of(self, boot: Boot) -> str:
        """Return why a boot may not go on although its token was valid; empty if it may."""
        return self._ring.refusal_of(key=boot.key, name=boot.name)

    def issue_publish(self, publishing: Publishing) -> str:
        """Return a token for this generation. Call only right after the generation's claim was seen."""
        generation = publishing.generation
        claims = {"live": publishing.live, "epoch": generation.epoch, "key": publishing.key}
        return self._sign(PUBLISH_AUDIENCE, generation.worker, PUBLISH_TTL_S, claims)

    async def read_publish(self, token: str) -> Publishing:
        """Return the generation that the token was issued to, or raise BadToken. The generation may be superseded."""
        claims = await self._claims(token, PUBLISH_AUDIENCE)
        epoch = claims.get("epoch")
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
            raise BadToken("the token names no epoch; pull to get another")
        key = str(claims.get("key") or "")
        try:
            found = Publishing(check_live(claims.get("live")), Generation(check_worker(claims["sub"]), epoch), key)
        except BadId as error:
            raise BadToken(f"the token does not hold ({error}); pull to get another") from None
        await self._refuse_ended(key=key, name=name_of(found.generation.worker))
        return found

    async def _refuse_ended(self, *, key: str, name: str) -> None:
        """Raise BadToken if the Worker's key has been revoked, or its name is banned."""
        if key and key not in self._ring.api_keys:
            await self._refresh()  # The key may be newer than the last read of the ring.
        if refused := self._ring.refusal_of(key=key, name=name):
            raise BadToken(refused)

    def _sign(self, audience: str, worker: str, ttl_s: float, more: Mapping[str, object]) -> str:
        now = self._clock()
        claims = {"aud": audience, "sub": worker, "iat": int(now), "exp": int(now + ttl_s), **more}
        kid = self._ring.newest("boot")
        return jwt.encode(claims, self._ring.secrets("boot")[kid], algorithm=ALGORITHM, headers={"kid": kid})

    async def _claims(self, token: str, audience: str) -> dict[str, Any]:
        if (kid := self._kid(token)) not in self._ring.secrets("boot"):
            await self._refresh()
        return self._verify(token, kid, audience)

    def _kid(self, token: str) -> str:
        try:
            kid = jwt.get_unverified_header(token).get("kid") if len(token) <= TOKEN_CHARS_MAX else None
        except jwt.InvalidTokenError:
            kid = None
        if not isinstance(kid, str):
            raise BadToken("the token was not issued by this cell; register to get one")
        return kid

    def _verify(self, token: str, kid: str, audience: str) -> dict[str, Any]:
        if (secret := self._ring.secrets("boot").get(kid)) is None:
            raise BadToken("the token is signed with a secret that this cell does not have; register to get another")
        try:
            # The times are checked below, by this object's clock.
            claims: dict[str, Any] = jwt.decode(
                token,
                secret,
                algorithms=[ALGORITHM],
                audience=audience,
                options={"verify_exp": False, "verify_iat": False, "require": ["exp", "iat", "sub"]},
            )
        except jwt.InvalidTokenError as error:
            raise BadToken(f"the token does not hold ({error}); register to get another") from None
        if (now := self._clock()) > claims["exp"] + LEEWAY_S:
            raise BadToken(f"the token expired {now - claims['exp']:.0f} s ago; register to get another")
        return claims

    async def _refresh(self) -> None:
        """Read the key ring again, unless it was read REFRESH_MIN_S ago: a token names an unknown secret or key."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._refreshed_at < REFRESH_MIN_S:
            return
        self._refreshed_at = loop.time()
        await self._ring.read()


def _boot(claims: Mapping[str, object]) -> Boot:
    if not isinstance(capacity := claims.get("capacity"), int):
        raise BadToken("the token has no capacity; register to get another")
    return Boot(
        worker=check_worker(claims["sub"]),
        boot=str(claims.get("boot")),
        name=str(claims.get("name")),
        pool=str(claims.get("pool")),
        capacity=capacity,
        key=str(claims.get("key") or ""),
        cell=str(claims.get("cell") or ""),
    )


def refuse_other_cell(boot: Boot, cell: str) -> None:
    """Raise BadToken if the boot is registered in another cell than the one that it is used in."""
    if boot.cell != cell:
        raise BadToken(f"the token is of cell {boot.cell or '(the only one)'}, and this is cell {cell}; register here")
