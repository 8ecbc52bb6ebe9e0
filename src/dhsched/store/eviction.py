"""Whether the store may delete what it was given to keep.

A server at its `maxmemory` either refuses what would need more (noeviction), or deletes keys by its policy: any key
(`allkeys-*`), or only keys that expire (`volatile-*`). Of ours, lives, slots and input never expire; the few keys that
do are counts and marks (docs/state.md), so only `allkeys-*` is dangerous. It is refused whether a limit is set or not:
a limit can be set at any time, and then the first thing that the server deletes may be the record of a live.
"""

from __future__ import annotations

from dhsched.errors import StoreIncompatible
from dhsched.store.link import Link
from dhsched.store.reads import parse_info

REMEDY = "CONFIG SET maxmemory-policy noeviction, and in its configuration file"


def evicts_lives(policy: str) -> bool:
    return policy.startswith("allkeys")


async def refuse_eviction(link: Link, *, allowed: bool) -> None:
    """Raise StoreIncompatible for a store that may delete lives, unless that is allowed."""
    if allowed:
        return
    policy = parse_info(await link.call("INFO", "memory")).get("maxmemory_policy", "noeviction")
    if evicts_lives(policy):
        raise StoreIncompatible(
            f"store {link.address.redacted()} may delete lives when its memory is full: its maxmemory-policy is "
            f"{policy}; {REMEDY}, or start all the same with --allow-eviction (DHSCHED_ALLOW_EVICTION)"
        )
