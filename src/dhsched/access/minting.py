"""The documents of `POST /v1/tokens`: the request with an API key, and the token in the answer.

They are here and not in client/models because every role with keys serves them (web/minting.py).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.callers import Role, Scope
from dhsched.types import Id

MINT_PATH = "/v1/tokens"
TTL_S = 900  # A token without a lifetime of its own expires after this.
TTL_MAX_S = 3600  # A longer lifetime is refused: a single token cannot be revoked.


class MintToken(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Lifetime and rights of the token; by default those of the key. Only an admin's key may name another role or
    tenant."""

    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=TTL_MAX_S)] = TTL_S
    role: Role | msgspec.UnsetType = msgspec.UNSET
    tenant: Id | msgspec.UnsetType = msgspec.UNSET
    scopes: Annotated[list[Scope], msgspec.Meta(max_length=16)] = []


class MintedToken(msgspec.Struct):
    """A token, to be sent as `Authorization: Bearer TOKEN`; empty where access is `open`, which needs none."""

    token: str
    expires_in_s: int
    access: str
