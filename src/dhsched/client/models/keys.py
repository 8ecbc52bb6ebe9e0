"""API keys and the secrets that sign tokens."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.callers import ANY, TENANT, Role
from dhsched.client.models.base import Strict
from dhsched.types import Id, whole

Pattern = Annotated[str, whole(r"[A-Za-z0-9._~*?-]{1,64}", description="A name, with * and ?.")]
Note = Annotated[str, whole(r"[ -~]{0,200}")]


class CreateKey(Strict):
    """A key's role and tenant; for Workers what it may register; `rate_per_s` 0 is the deployment's own limit."""

    role: Role
    tenant: Id = TENANT
    names: Pattern = ANY
    pool: Pattern = ANY
    capacity_max: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    rate_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0
    note: Note = ""


class KeyOut(msgspec.Struct):
    """A key without its secret, which is not stored."""

    key_id: str
    role: str
    tenant: str
    names: str
    pool: str
    capacity_max: int
    rate_per_s: float
    note: str
    created_at_ms: int


class KeyMade(msgspec.Struct):
    """A new key. `key` is its text, shown this once."""

    key: str
    record: KeyOut


class KeyList(msgspec.Struct):
    """Every key, the oldest first."""

    keys: list[KeyOut]


class Rotate(Strict):
    """Options of a rotation. `drop_old` invalidates at once all that was signed so far: for a secret that leaked."""

    drop_old: bool = False


class Rotated(msgspec.Struct):
    """The `kid` that signs from now on, and the ones that were dropped."""

    kind: str
    kid: str
    dropped: list[str]
