"""Pools and DigitalIDs in the store, and as placement wants them.

What is put is decoded strictly. What is read back is not, so that a replica of an older version still reads what a
newer one wrote.
"""

from __future__ import annotations

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


def as_request(name: str, config: DigitalIdConfig) -> PlacementRequest:
    """What a create of this DigitalID asks of placement."""
    return request_for(
        DigitalID(
            name=name,
            pools=tuple(PoolEntry(entry.pool, entry.tier) for entry in config.pools),
            required_labels=frozenset(config.required_labels),
            preferred_labels=frozenset(config.preferred_labels),
        )
    )
