"""The limits of tenants, as they are put and listed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.access.tenants import TenantLimits
from dhsched.types import ID_PATTERN, whole

TenantName = Annotated[
    str, whole(rf"{ID_PATTERN}|\*", max_length=64, description="A tenant, or `*` for every tenant without a record.")
]


class PutTenant(TenantLimits, frozen=True, forbid_unknown_fields=True):
    """All limits of a tenant: a limit that is left out is none."""


class NamedTenant(msgspec.Struct, frozen=True):
    """The limits of a tenant with its name; `*` is every tenant without a record."""

    name: str
    config: TenantLimits


class UsageOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tenant uses, and its limits. `lives` have not ended; `live_seconds` and `items` are totals since the store
    was empty, so take the difference of two readings. `pending_bytes` is what its pending input took at
    `pending_measured_at_ms`; both are left out if it was not measured: only tenants with a `pending_bytes_max` are."""

    tenant: str
    lives: int
    live_seconds: float
    items: int
    limits: TenantLimits
    pending_bytes: int | None = None
    pending_measured_at_ms: int | None = None


class TenantList(msgspec.Struct, frozen=True):
    """Every tenant that has a record, by name."""

    tenants: list[NamedTenant]
