"""`POST /v1/tokens`: an API key shows itself and gets a short-lived token. Every role that listens serves it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.api_tokens import TTL_MAX_S, TTL_S
from dhsched.access.callers import Role, Scope
from dhsched.types import Id
from dhsched.web.endpoints import Asked, Endpoint


class MintToken(msgspec.Struct, forbid_unknown_fields=True):
    """What the token is for; by default, all that the key may do. Only an admin's key names a role or a tenant."""

    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=TTL_MAX_S)] = TTL_S
    role: Role | msgspec.UnsetType = msgspec.UNSET
    tenant: Id | msgspec.UnsetType = msgspec.UNSET
    scopes: Annotated[list[Scope], msgspec.Meta(max_length=16)] = []


class MintedToken(msgspec.Struct):
    """A token, to be sent as `Authorization: Bearer TOKEN`. Where access is `open`, none is needed and it is empty."""

    token: str
    expires_in_s: int
    access: str


async def mint(asked: Asked) -> MintedToken:
    body: MintToken = asked.body
    gate = asked.service.gate
    if gate is None:
        return MintedToken("", body.ttl_s, "open")
    token = gate.mint(
        asked.caller,
        ttl_s=body.ttl_s,
        role=None if body.role is msgspec.UNSET else body.role,
        tenant=None if body.tenant is msgspec.UNSET else body.tenant,
        scopes=body.scopes,
    )
    return MintedToken(token, body.ttl_s, "keys")


MINT = Endpoint(
    name="mint_token",
    method="POST",
    path="/v1/tokens",
    handler=mint,
    summary="Mint a short-lived token; the API key is the bearer.",
    tag="access",
    body=MintToken,
    replies={200: MintedToken},
)
