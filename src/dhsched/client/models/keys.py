"""API keys, the secrets that sign tokens, join tokens of machines, and banned Worker names."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.callers import ANY, TENANT, Role
from dhsched.access.machine_records import JOIN_TTL_MAX_S, JOIN_TTL_S
from dhsched.client.models.base import UNSET, Optional, Strict
from dhsched.types import Id, whole

Pattern = Annotated[str, whole(r"[A-Za-z0-9._~*?-]{1,64}", description="A name, with * and ?.")]
Note = Annotated[str, whole(r"[ -~]{0,200}")]
Label = Annotated[str, whole(r"[A-Za-z0-9._~=/:+-]{1,64}", description="A label of a Worker, like zone=a.")]
LabelPattern = Annotated[str, whole(r"[A-Za-z0-9._~=/:+*?-]{1,64}", description="A label, with * and ?.")]
Capacity = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class CreateKey(Strict):
    """A key's role and tenant; for Workers what it may register; `rate_per_s` 0 is the deployment's own limit.

    A key of role worker needs `names`. Without `labels` its Workers may have none.
    """

    role: Role
    tenant: Id = TENANT
    names: Pattern | Optional = UNSET
    pool: Pattern = ANY
    capacity_max: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    labels: Annotated[tuple[LabelPattern, ...], msgspec.Meta(max_length=15)] = ()
    rate_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0
    note: Note = ""


class KeyOut(msgspec.Struct):
    """A key without its secret, which is not stored. `machine`: it is for the one Worker that its bounds describe."""

    key_id: str
    role: str
    tenant: str
    names: str
    pool: str
    capacity_max: int
    labels: list[str]
    machine: bool
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


class Invite(Strict):
    """The Worker that a machine becomes when it joins, and the lifetime of the join token."""

    name: Id
    pool: Id
    capacity: Capacity
    labels: Annotated[tuple[Label, ...], msgspec.Meta(max_length=15)] = ()
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=JOIN_TTL_MAX_S)] = JOIN_TTL_S


class Invited(msgspec.Struct):
    """A new join token, for one use. `token` is its text, shown this once."""

    token: str
    name: str
    expires_at_ms: int


class Join(Strict):
    """The join token that a machine exchanges for its key."""

    token: Annotated[str, msgspec.Meta(max_length=128)]


class BanName(Strict):
    """Options of a ban."""

    note: Note = ""


class BanOut(msgspec.Struct):
    """A banned Worker name."""

    name: str
    banned_at_ms: int
    note: str


class Banned(BanOut):
    """A banned Worker name, and the Workers that the ban ended."""

    workers: list[str]


class BanList(msgspec.Struct):
    """Every banned Worker name, sorted."""

    bans: list[BanOut]
