"""API keys and signing secrets over HTTP: make, list, revoke, rotate. For admins."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dhsched.access.api_keys import ApiKey
from dhsched.access.callers import ANY, TENANT, Role
from dhsched.dispatch.context import DispatchContext
from dhsched.types import check_id
from dhsched.web import Asked, Endpoint, Id, Problem, Reply

Pattern = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._~*?-]{1,64}$", description="A name, with * and ?.")]
KeyId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}$")]
Note = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{0,200}$")]


class CreateKey(msgspec.Struct, forbid_unknown_fields=True):
    """A key's role and tenant; for Workers what it may register; `rate_per_s` 0 is the deployment's own limit."""

    role: Role
    tenant: Id = TENANT
    names: Pattern = ANY
    pool: Pattern = ANY
    capacity_max: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    rate_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0
    note: Note = ""


class KeyOut(msgspec.Struct):
    """A key without its secret, which nobody keeps."""

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


class KeyPath(msgspec.Struct, forbid_unknown_fields=True):
    key_id: KeyId


class SecretPath(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["access", "boot"]


class Rotate(msgspec.Struct, forbid_unknown_fields=True):
    """`drop_old` makes all that was signed so far void at once: for a secret that leaked."""

    drop_old: bool = False


class Rotated(msgspec.Struct):
    """The `kid` that signs from now on, and those that were dropped."""

    kind: str
    kid: str
    dropped: list[str]


class KeyEndpoints:
    """The endpoints of keys, of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_keys",
                method="GET",
                path="/v1/keys",
                handler=self.list,
                summary="API keys, without their secrets.",
                tag="access",
                replies={200: KeyList},
            ),
            Endpoint(
                name="create_key",
                method="POST",
                path="/v1/keys",
                handler=self.create,
                summary="Make an API key; its text is shown this once.",
                tag="access",
                body=CreateKey,
                replies={201: KeyMade},
            ),
            Endpoint(
                name="revoke_key",
                method="DELETE",
                path="/v1/keys/{key_id}",
                handler=self.revoke,
                summary="Revoke an API key and all tokens that it minted.",
                tag="access",
                path_type=KeyPath,
                replies={204: None},
                problems=["NOT_FOUND", "IN_USE"],
            ),
            Endpoint(
                name="rotate_secret",
                method="POST",
                path="/v1/secrets/{kind}/rotate",
                handler=self.rotate,
                summary="Sign tokens of keys (access) or of Workers' boots (boot) with a new secret.",
                tag="access",
                path_type=SecretPath,
                body=Rotate,
                replies={200: Rotated},
            ),
        ]

    async def list(self, asked: Asked) -> KeyList:
        ring = self.context.ring
        await ring.read()
        found = sorted(ring.api_keys.values(), key=lambda key: (key.created_at_ms, key.id))
        return KeyList([key_out(key) for key in found])

    async def create(self, asked: Asked) -> Reply:
        body: CreateKey = asked.body
        text, record = await self.context.ring.create(
            role=body.role,
            tenant=check_id(body.tenant, "tenant"),
            names=body.names,
            pool=body.pool,
            capacity_max=body.capacity_max,
            rate_per_s=body.rate_per_s,
            note=body.note,
        )
        return Reply(KeyMade(text, key_out(record)), status=201)

    async def revoke(self, asked: Asked) -> Reply:
        ring, key_id = self.context.ring, asked.path.key_id
        await ring.read()
        admins = [key.id for key in ring.api_keys.values() if key.role == "admin"]
        if admins == [key_id] and asked.service.gate is not None:
            raise Problem(
                "IN_USE", f"key {key_id} is the last one of an admin; make another before you revoke it", key_id=key_id
            )
        if not await ring.revoke(key_id):
            raise Problem("NOT_FOUND", f"key {key_id} does not exist; list those that do", key_id=key_id)
        return Reply(status=204)

    async def rotate(self, asked: Asked) -> Rotated:
        kind = asked.path.kind
        kid, dropped = await self.context.ring.rotate(kind, drop_old=asked.body.drop_old)
        return Rotated(kind, kid, dropped)


def key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        key_id=key.id,
        role=key.role,
        tenant=key.tenant,
        names=key.names,
        pool=key.pool,
        capacity_max=key.capacity_max,
        rate_per_s=key.rate_per_s,
        note=key.note,
        created_at_ms=key.created_at_ms,
    )
