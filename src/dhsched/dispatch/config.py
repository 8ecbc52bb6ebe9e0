"""Names of the Pool and DigitalID records in the store, and their conversion to placement's types.

A record is decoded strictly when it is put, and leniently when it is read back, so that a replica of an older version
still reads the records of a newer one.
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
    """Return the placement request for a live of this DigitalID."""
    return request_for(
        DigitalID(
            name=name,
            pools=tuple(PoolEntry(entry.pool, entry.tier) for entry in config.pools),
            required_labels=frozenset(config.required_labels),
            preferred_labels=frozenset(config.preferred_labels),
        )
    )
