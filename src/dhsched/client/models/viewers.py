"""Viewer tokens, and the public keys with which rooms verify them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.viewers import RATE_MAX_PER_S, RATE_MIN_PER_S, TTL_MAX_S, TTL_S, Grant
from dhsched.client.models.base import UNSET, Identity, Optional, Strict
from dhsched.types import whole

Rate = Annotated[float, msgspec.Meta(ge=RATE_MIN_PER_S, le=RATE_MAX_PER_S)]


class MintViewerToken(Strict):
    """Rights and lifetime of a viewer token. Rates are items a second; without them the room's own limits hold."""

    grants: Annotated[list[Grant], msgspec.Meta(min_length=1, max_length=8)] = msgspec.field(
        default_factory=lambda: ["watch"]
    )
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=TTL_MAX_S)] = TTL_S
    identity: Identity = ""
    say_rate_per_s: Rate | Optional = UNSET
    interrupt_rate_per_s: Rate | Optional = UNSET


class ViewerToken(msgspec.Struct, frozen=True):
    """A viewer token, which a room takes as `Authorization: Bearer TOKEN`, and its page from a link."""

    live_id: str
    token: str
    expires_in_s: int

    def link(self, room_url: str) -> str:
        """Return the address of the live's page in a room. A browser sends no server what is behind the #."""
        return f"{room_url.rstrip('/')}/live/{self.live_id}#token={self.token}"


class ViewerKeysQuery(Strict):
    """`kid` names the key that is needed: a replica that does not know it yet reads the keys again first."""

    kid: Annotated[str, whole(r"[0-9]{1,16}")] | Optional = UNSET


class ViewerKey(msgspec.Struct, frozen=True):
    """A public key as a JSON Web Key (RFC 8037): `x` is the key, base64url."""

    kid: str
    x: str
    kty: str = "OKP"
    crv: str = "Ed25519"
    alg: str = "EdDSA"
    use: str = "sig"


class ViewerKeys(msgspec.Struct, frozen=True):
    """Every public key that verifies viewer tokens now, as a JSON Web Key Set."""

    keys: list[ViewerKey]
