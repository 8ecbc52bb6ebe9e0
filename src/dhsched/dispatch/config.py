"""Names of the Pool and DigitalID records in the store, and their conversion to placement's types.

A record is decoded strictly when it is put, and leniently when it is read back, so that a replica of an older version
still reads the records of a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping

from dhsched.client.models.pools import DigitalIdConfig, PoolConfig
from dhsched.placement import DigitalID, PlacementRequest, Pool, PoolEntry, request_for

POOLS = "pools"
DIGITAL_IDS = "digital_ids"


def as_pool(name: str, config: PoolConfig) -> Pool:
    return Pool(
        name=name,
        priority=config.priority,
        gpu_class=config.gpu_class,
        region=config.region,
        labels=frozenset(config.labels),
        tier_workers_min=config.tier_workers_min,
        tier_divisor=config.tier_divisor,
        tau_slots=config.tau_slots,
        candidates_max=config.candidates_max,
        policy=config.policy,
    )


def pool_limits(config: PoolConfig) -> dict[str, int]:
    """Return the limits that a Pool has of its own, as each report of its Workers takes them; 0 where it has none."""
    return {
        "starts_create": config.starts_create_max or 0,
        "starts_recover": config.starts_recover_max or 0,
        "cutovers": config.cutovers_max or 0,
    }


def lifetime(request: PlacementRequest, pools: Mapping[str, PoolConfig]) -> tuple[float | None, float | None]:
    """Return `idle_s` and `max_s` of the Pool that a live prefers, by tier and priority; None is no limit."""
    eligible = [
        (tier, pool.priority, name)
        for name, tier in request.pools
        if (pool := pools.get(name)) and request.required_labels <= as_pool(name, pool).offers()
    ]
    if not eligible:
        return None, None
    preferred = pools[min(eligible)[2]]
    return preferred.idle_s, preferred.max_s


def as_request(name: str, config: DigitalIdConfig) -> PlacementRequest:
    """Return the placement request for a live of this DigitalID."""
    return request_for(
        DigitalID(
            name=name,
            pools=tuple(PoolEntry(entry.pool, entry.tier) for entry in config.pools),
            required_labels=frozenset(config.required_labels),
            preferred_labels=frozenset(config.preferred_labels),
        )
    )
