"""The record of a tenant's limits in the store's configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.types import NUMBER_MAX

TENANTS = "tenants"
"""The name of the records in the store's configuration."""
EVERY_OTHER = "*"
"""The name under which the limits of tenants without a record of their own are configured."""

Most = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class TenantLimits(msgspec.Struct, frozen=True):
    """The limits of a tenant, over all replicas. 0 is no limit.

    `lives_max`: lives that have not ended. `streams_max`: open streams and watchers of its lives. `waiting_max`:
    creates that wait for a free slot. `rate_per_s`: requests and items of streams per second, of all its keys together.
    `pending_bytes_max`: bytes of input that is accepted and not acked, of all its lives.
    """

    lives_max: Most = 0
    streams_max: Most = 0
    waiting_max: Most = 0
    rate_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0
    pending_bytes_max: Most = 0


NO_LIMITS = TenantLimits()
