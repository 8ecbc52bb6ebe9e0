"""The limits of tenants, as they are configured and listed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.types import ID_PATTERN, NUMBER_MAX, whole

EVERY_OTHER = "*"
"""The name under which the limits of tenants without a record of their own are configured."""

TenantName = Annotated[
    str, whole(rf"{ID_PATTERN}|\*", max_length=64, description="A tenant, or `*` for every tenant without a record.")
]
Most = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class TenantConfig(msgspec.Struct, frozen=True):
    """The limits of a tenant. 0 is no limit.

    `lives_max`: lives that have not ended.
    """

    lives_max: Most = 0


class PutTenant(TenantConfig, frozen=True, forbid_unknown_fields=True):
    """All limits of a tenant: a limit that is left out is none."""


class NamedTenant(msgspec.Struct, frozen=True):
    """The limits of a tenant with its name; `*` is every tenant without a record."""

    name: str
    config: TenantConfig


class TenantList(msgspec.Struct, frozen=True):
    """Every tenant that has a record, by name."""

    tenants: list[NamedTenant]


def limits_of(tenants: dict[str, TenantConfig], tenant: str) -> TenantConfig:
    """Return the limits that apply to a tenant: its own, else those of `*`, else none."""
    return tenants.get(tenant) or tenants.get(EVERY_OTHER) or NO_LIMITS


NO_LIMITS = TenantConfig()
