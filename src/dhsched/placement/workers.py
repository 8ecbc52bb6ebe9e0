"""Workers of one Pool: the bottom tier and the sample from it (paper, 5.4).

    B(P) = { w in P | rank(w) <= k(P)  and  load(w) <= min load + tau },   k(P) = max(8, N / 8)

over effective load. Picking the minimum itself would send every replica that holds the same snapshot to the same
Worker. Workers of equal load have no order of their own: where rank k falls among equals, chance decides who is in.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from dhsched.placement.index import FULL, MILLI, PoolView, WorkerView


class Tier(NamedTuple):
    """The bottom tier: whole buckets from the lowest up, the last of them perhaps in part."""

    buckets: list[list[WorkerView]]
    sure: int  # Workers in all buckets but the last: these are in the tier.
    size: int  # Workers in the tier; the last bucket fills what `sure` leaves open.


def tier_workers(pool: PoolView) -> int:
    """k(P): a minimum tier, which grows with the Pool."""
    return max(pool.pool.tier_workers_min, len(pool.members) // pool.pool.tier_divisor)


def tier_window(pool: PoolView) -> int:
    """tau in bucket keys: slots, or the share of the mean capacity that they are where capacities differ."""
    if pool.divisor:
        return pool.pool.tau_slots
    return pool.pool.tau_slots * MILLI * len(pool.members) // pool.capacity


def bottom_tier(pool: PoolView) -> Tier:
    """The tier of a Pool that has room. Workers believed full are never in it."""
    k = tier_workers(pool)
    limit = pool.keys[0] + tier_window(pool)
    buckets: list[list[WorkerView]] = []
    sure = size = 0
    for key in pool.keys:
        if key > limit:
            break
        bucket = pool.buckets[key]
        buckets.append(bucket)
        sure = size
        size += len(bucket)
        if size >= k:
            return Tier(buckets, sure, k)
    return Tier(buckets, sure, size)


def draw(pool: PoolView, count: int, preferred: frozenset[str], rng: Random) -> list[WorkerView]:
    """Up to `count` Workers believed to have room, in the order in which to try them.

    A uniform sample of the bottom tier without replacement; when the tier is too small, the tier of the rest
    follows, and so on. Preferred labels come first within a tier: they never reach above it.
    """
    if not pool.has_room():
        return []
    if preferred:
        return _draw_preferred(pool, count, preferred, rng)
    tier = bottom_tier(pool)
    if 2 * count > tier.size:
        return _draw_in_bands(pool, count, rng)
    return _sample(tier, count, rng)


def draw_full(pool: PoolView, count: int, rng: Random) -> list[WorkerView]:
    """Workers believed full, at random. They are worth a try when nothing else is left: the store is the judge."""
    full = pool.buckets.get(FULL, [])
    return rng.sample(full, min(count, len(full)))


def _sample(tier: Tier, count: int, rng: Random) -> list[WorkerView]:
    """Draw ranks and look up who holds them. The tier must be at least twice `count`, or redrawing gets long."""
    buckets, sure, size = tier
    edge = buckets[-1]
    random = rng.random
    ranks: list[int] = []
    chosen: list[WorkerView] = []
    while len(chosen) < count:
        rank = int(random() * size)
        if rank in ranks:
            continue
        ranks.append(rank)
        if rank >= sure:
            worker = edge[int(random() * len(edge))]
            while worker in chosen:
                worker = edge[int(random() * len(edge))]
        else:
            for bucket in buckets:
                if rank < len(bucket):
                    break
                rank -= len(bucket)
            worker = bucket[rank]
        chosen.append(worker)
    return chosen


def bands(pool: PoolView, rng: Random) -> Iterator[list[WorkerView]]:
    """The bottom tier in random order, then the bottom tier of the rest, until all Workers with room were named."""
    k, window = tier_workers(pool), tier_window(pool)
    keys = [key for key in pool.keys if key != FULL]
    at = 0
    carry: list[WorkerView] = []  # Those of equal load that rank k left out of the last band.
    carry_key = 0
    while carry or at < len(keys):
        limit = window + (carry_key if carry else keys[at])
        band, carry = carry[:k], carry[k:]
        while len(band) < k and at < len(keys) and keys[at] <= limit:
            equals = pool.buckets[keys[at]].copy()
            rng.shuffle(equals)
            open_ranks = k - len(band)
            band += equals[:open_ranks]
            carry, carry_key = equals[open_ranks:], keys[at]
            at += 1
        rng.shuffle(band)
        yield band


def _draw_in_bands(pool: PoolView, count: int, rng: Random) -> list[WorkerView]:
    chosen: list[WorkerView] = []
    for band in bands(pool, rng):
        chosen += band[: count - len(chosen)]
        if len(chosen) == count:
            break
    return chosen


def _draw_preferred(pool: PoolView, count: int, preferred: frozenset[str], rng: Random) -> list[WorkerView]:
    """Those of the tier that carry most of the preferred labels, then the others as if no label had been asked for.

    Labels break the ties of rank, so all of the tier's last bucket takes part.
    """
    by_matches: dict[int, list[WorkerView]] = {}
    for bucket in bottom_tier(pool).buckets:
        for worker in bucket:
            matches = len(preferred & worker.labels)
            if matches:
                by_matches.setdefault(matches, []).append(worker)
    chosen: list[WorkerView] = []
    for matches in sorted(by_matches, reverse=True):
        equals = by_matches[matches]
        chosen += rng.sample(equals, min(count - len(chosen), len(equals)))
    if len(chosen) < count:
        others = draw(pool, count + len(chosen), frozenset(), rng)
        chosen += [worker for worker in others if worker not in chosen][: count - len(chosen)]
    return chosen
