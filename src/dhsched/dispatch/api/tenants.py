"""Limits of tenants over HTTP: put, get, list and delete; and what a tenant uses."""

from __future__ import annotations

from typing import Any

import msgspec

from dhsched.access.gate import for_tenant
from dhsched.access.quotas import limits_of
from dhsched.access.tenants import EVERY_OTHER, TENANTS, TenantLimits
from dhsched.client.models.tenants import NamedTenant, PutTenant, TenantList, UsageOut
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.configuration import configure
from dhsched.dispatch.api.part import Part
from dhsched.types import check_id
from dhsched.web import Endpoint, Problem, Reply, Request


class Tenants(Part):
    """The endpoints of tenants, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        one: dict[str, Any] = {"tag": "tenants", "path": "/v1/tenants/{tenant}", "path_type": p.TenantPath}
        return [
            Endpoint(
                name="list_tenants",
                method="GET",
                path="/v1/tenants",
                handler=self.list,
                summary="Every tenant that has a record of limits.",
                tag="tenants",
                replies={200: TenantList},
            ),
            Endpoint(
                name="get_tenant",
                method="GET",
                handler=self.get,
                summary="The limits of one tenant, or of `*`: every tenant without a record.",
                replies={200: NamedTenant},
                problems=["NOT_FOUND"],
                **one,
            ),
            Endpoint(
                name="put_tenant",
                method="PUT",
                handler=self.put,
                summary="Make or replace the limits of a tenant.",
                body=PutTenant,
                replies={200: NamedTenant, 201: NamedTenant},
                **one,
            ),
            Endpoint(
                name="delete_tenant",
                method="DELETE",
                handler=self.delete,
                summary="Delete the limits of a tenant: those of `*` apply to it.",
                replies={204: None},
                problems=["NOT_FOUND"],
                **one,
            ),
            Endpoint(
                name="get_usage",
                method="GET",
                path="/v1/tenants/{tenant}/usage",
                handler=self.usage,
                summary="What a tenant uses, and its limits; an app sees its own tenant's.",
                tag="tenants",
                path_type=p.UsagePath,
                replies={200: UsageOut},
            ),
        ]

    async def list(self, asked: Request) -> TenantList:
        return TenantList([NamedTenant(*each) for each in (await self._all()).items()])

    async def get(self, asked: Request) -> NamedTenant:
        name = checked(asked.path.tenant)
        config = (await self._all()).get(name)
        if config is None:
            raise no_tenant(name)
        return NamedTenant(name, config)

    async def put(self, asked: Request) -> Reply:
        name = checked(asked.path.tenant)
        known = await self._configure(name, asked.body)
        return Reply(NamedTenant(name, asked.body), status=200 if known else 201)

    async def delete(self, asked: Request) -> Reply:
        name = checked(asked.path.tenant)
        if not await self._configure(name, None):
            raise no_tenant(name)
        return Reply(status=204)

    async def usage(self, asked: Request) -> UsageOut:
        tenant = for_tenant(asked.caller, check_id(asked.path.tenant, "tenant")).tenant
        found = await self.context.records.tenants.usage(tenant)
        limits = limits_of(await self._all(), tenant)
        usage = UsageOut(tenant, found.lives, found.live_ms / 1000, found.items, limits)
        if limits.pending_bytes_max and (measured := await self.context.records.tenants.pending()).at_ms:
            pending = {"pending_bytes": measured.bytes.get(tenant, 0), "pending_measured_at_ms": measured.at_ms}
            return msgspec.structs.replace(usage, **pending)
        return usage

    async def _all(self) -> dict[str, TenantLimits]:
        return await self.context.records.config.all(TENANTS, TenantLimits)

    async def _configure(self, name: str, limits: TenantLimits | None) -> bool:
        known = await configure(self.context, TENANTS, name, limits)
        await self.context.quota_reports.read_limits()
        return known


def checked(tenant: str) -> str:
    return tenant if tenant == EVERY_OTHER else check_id(tenant, "tenant")


def no_tenant(name: str) -> Problem:
    return Problem("NOT_FOUND", f"tenant {name} has no record of limits; list the tenants", tenant=name)
