"""The documents of `POST /v1/tokens`: what an API key asks for, and the token that it gets.

They stand here and not in client/models, because every role that listens serves them (web/minting.py).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.callers import Role, Scope
from dhsched.types import Id

MINT_PATH = "/v1/tokens"
TTL_S = 900
TTL_MAX_S = 3600


class MintToken(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
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
