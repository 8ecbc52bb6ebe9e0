"""`POST /v1/tokens`: mint a short-lived token with an API key. Dispatch and Infer-Controllers serve this endpoint."""

from __future__ import annotations

import msgspec

from dhsched.access.minting import MINT_PATH, MintedToken, MintToken
from dhsched.web.endpoints import Endpoint, Request


async def mint(asked: Request) -> MintedToken:
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
    audited=False,  # It changes nothing: what is asked with the token names its key.
    method="POST",
    path=MINT_PATH,
    handler=mint,
    summary="Mint a short-lived token; the bearer is the API key.",
    tag="access",
    body=MintToken,
    replies={200: MintedToken},
)
