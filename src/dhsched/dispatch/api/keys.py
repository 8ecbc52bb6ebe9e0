"""API keys and signing secrets over HTTP, for admins: create, list and revoke keys, rotate secrets."""

from __future__ import annotations

from typing import Annotated

from msgspec import structs

from dhsched.access.api_keys import ApiKey
from dhsched.access.callers import ANY
from dhsched.access.ring import KeyRing, SecretKind
from dhsched.client.models import keys as m
from dhsched.client.models.base import UNSET, Strict
from dhsched.dispatch.api.part import Part
from dhsched.errors import Unbounded
from dhsched.types import check_id, labels_of, whole
from dhsched.web import Endpoint, Problem, Reply, Request

KeyId = Annotated[str, whole(r"[0-9a-f]{12}")]


class KeyPath(Strict):
    key_id: KeyId


class SecretPath(Strict):
    kind: SecretKind


class KeyEndpoints(Part):
    """The endpoints of keys, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_keys",
                method="GET",
                path="/v1/keys",
                handler=self.list,
                summary="API keys, without their secrets.",
                tag="access",
                replies={200: m.KeyList},
            ),
            Endpoint(
                name="create_key",
                method="POST",
                path="/v1/keys",
                handler=self.create,
                summary="Create an API key; its text is shown only now.",
                tag="access",
                body=m.CreateKey,
                replies={201: m.KeyMade},
                problems=["UNBOUNDED"],
            ),
            Endpoint(
                name="revoke_key",
                method="DELETE",
                path="/v1/keys/{key_id}",
                handler=self.revoke,
                summary="Revoke an API key and all tokens that it minted; Workers that registered with it are gone.",
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
                summary="Sign tokens of keys (access), Workers' boots (boot) or viewers (viewer) with a new secret.",
                tag="access",
                path_type=SecretPath,
                body=m.Rotate,
                replies={200: m.Rotated},
            ),
        ]

    async def list(self, asked: Request) -> m.KeyList:
        return await list_keys(self.context.ring)

    async def create(self, asked: Request) -> Reply:
        return Reply(await create_key(self.context.ring, asked.body), status=201)

    async def revoke(self, asked: Request) -> Reply:
        ring, key_id = self.context.ring, asked.path.key_id
        await ring.read()
        admins = [key.id for key in ring.api_keys.values() if key.role == "admin"]
        if admins == [key_id] and asked.service.gate is not None:
            raise Problem(
                "IN_USE", f"key {key_id} is the last admin key; create another before you revoke it", key_id=key_id
            )
        if not await ring.revoke(key_id):
            raise Problem("NOT_FOUND", f"key {key_id} does not exist; list the keys", key_id=key_id)
        return Reply(status=204)

    async def rotate(self, asked: Request) -> m.Rotated:
        return await rotate_secret(self.context.ring, asked.path.kind, drop_old=asked.body.drop_old)


# -- for the endpoints, and for `dhsched key --store`


async def list_keys(ring: KeyRing) -> m.KeyList:
    await ring.read_or_known()
    found = sorted(ring.api_keys.values(), key=lambda key: (key.created_at_ms, key.id))
    return m.KeyList([key_out(key) for key in found])


async def create_key(ring: KeyRing, body: m.CreateKey) -> m.KeyMade:
    check_id(body.tenant, "tenant")
    if body.role == "worker" and body.names is UNSET:
        raise Unbounded(
            "a key of role worker needs names, the Worker name or pattern that it may register: --names 'gpu-*', or "
            "--names '*' for any name. A key for one machine is made by `dhsched worker invite`"
        )
    names = ANY if body.names is UNSET else body.names
    text, record = await ring.create(**{**structs.asdict(body), "names": names, "labels": ",".join(body.labels)})
    return m.KeyMade(text, key_out(record))


async def rotate_secret(ring: KeyRing, kind: SecretKind, *, drop_old: bool) -> m.Rotated:
    kid, dropped = await ring.rotate(kind, drop_old=drop_old)
    return m.Rotated(kind, kid, dropped)


def key_out(key: ApiKey) -> m.KeyOut:
    return m.KeyOut(
        key_id=key.id,
        role=key.role,
        tenant=key.tenant,
        names=key.names,
        pool=key.pool,
        capacity_max=key.capacity_max,
        labels=sorted(labels_of(key.labels)),
        machine=key.machine,
        rate_per_s=key.rate_per_s,
        note=key.note,
        created_at_ms=key.created_at_ms,
    )
