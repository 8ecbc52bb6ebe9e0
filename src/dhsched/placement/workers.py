"""Workers of one Pool: the bottom tier and the sample from it (paper, 5.4), and the sample that the store compares.

    B(P) = { w in P | rank(w) <= k(P)  and  load(w) <= min load + tau },   k(P) = max(8, N / 8)

over effective load. Picking the minimum itself would send every replica that holds the same snapshot to the same
Worker. Workers of equal load have no order of their own: where rank k falls among equals, chance decides who is in.
"""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from math import ceil
from random import Random
from typing import NamedTuple

from dhsched.placement.index import FULL, MILLI, PoolView, WorkerView

LOWEST_SHARE = 0.25  # Share of the candidates for the store that are the lowest by the view.
EQUALS_READ_MAX = 512  # Of more Workers with equally many preferred labels, one decision ranks a sample of this size.
LABELS_READ_MAX = 512  # Labels of further Workers are not compared; any tier of a Pool of 4,000 Workers fits.
NO_LABELS: frozenset[str] = frozenset()


class Tier(NamedTuple):
    """The bottom tier: whole buckets from the lowest up, the last of them perhaps in part."""

    buckets: list[list[WorkerView]]
    sure: int  # Workers in all buckets but the last: these are in the tier.
    size: int  # Workers in the tier; the last bucket fills what `sure` leaves open.


def tier_workers(pool: PoolView) -> int:
    """Return k(P): a minimum tier, which grows with the Pool."""
    return max(pool.pool.tier_workers_min, len(pool.members) // pool.pool.tier_divisor)


def tier_window(pool: PoolView) -> int:
    """Return tau in bucket keys: slots, or if capacities differ, the share of the mean capacity that they are."""
    if pool.divisor:
        return pool.pool.tau_slots
    return pool.pool.tau_slots * MILLI * len(pool.members) // pool.capacity


def bottom_tier(pool: PoolView, start: int = 0) -> Tier:
    """Return the tier of the buckets from `start` up. `start` must not be the bucket of Workers believed full."""
    k = tier_workers(pool)
    limit = pool.keys[start] + tier_window(pool)
    buckets: list[list[WorkerView]] = []
    sure = size = 0
    for key in islice(pool.keys, start, None) if start else pool.keys:
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
    """Return up to `count` Workers believed to have a free slot, in the order in which to try them.

    They are a uniform sample of the bottom tier without replacement; if the tier is too small, the tier of the rest
    follows, and so on. Preferred labels come first within the tier: they never reach above it.
    """
    if preferred and pool.has_free_slot():
        return _draw_preferred(pool, count, preferred, rng)
    chosen: list[WorkerView] = []
    start = 0
    while len(chosen) < count and start < len(pool.keys) and pool.keys[start] != FULL:
        tier = bottom_tier(pool, start)
        chosen += _sample(tier, count - len(chosen), rng)
        start += len(tier.buckets)
        if len(chosen) < count and tier.size - tier.sure < len(tier.buckets[-1]):
            # Rank k fell among equals and the tier holds too few: its left-out equals are next.
            left_out = [worker for worker in tier.buckets[-1] if worker not in chosen]
            chosen += rng.sample(left_out, min(count - len(chosen), len(left_out)))
    return chosen


def draw_widely(
    pool: PoolView, with_free_slot: int, count: int, preferred: frozenset[str], rng: Random
) -> list[WorkerView]:
    """Return up to `count` of the `with_free_slot` Workers, for the store to compare by true loads.

    If there are no more than `count`, all are returned. Else a quarter are the lowest as this replica sees them, which
    is exact while the view is fresh, and the others come from anywhere, which no age of a view can spoil. Workers with
    more of the preferred labels come first.
    """
    chosen: list[WorkerView] = []
    if preferred:
        for equals in _by_matches(pool, preferred):
            chosen += _some_of(equals, count - len(chosen), rng)
            if len(chosen) == count:
                break
        return chosen
    low = count if with_free_slot <= count else ceil(count * LOWEST_SHARE)
    for key in pool.keys:
        if key == FULL or len(chosen) == low:
            break
        bucket = pool.buckets[key]
        chosen += rng.sample(bucket, min(low - len(chosen), len(bucket)))
    if with_free_slot > count:
        chosen += _anywhere(pool, count - low, chosen, rng)
    return chosen


def draw_full(pool: PoolView, count: int, rng: Random) -> list[WorkerView]:
    """Return Workers believed full, at random. They are worth a try when nothing else is left: the store decides."""
    full = pool.buckets.get(FULL, [])
    return rng.sample(full, min(count, len(full)))


def _sample(tier: Tier, count: int, rng: Random) -> list[WorkerView]:
    """Draw ranks and look up their Workers; if most of a small tier is wanted, shuffle all of it, which is cheaper."""
    buckets, sure, size = tier
    edge = buckets[-1]
    if 2 * count > size:
        members = [worker for bucket in buckets[:-1] for worker in bucket] + rng.sample(edge, size - sure)
        rng.shuffle(members)
        return members[:count]
    random = rng.random
    ranks: list[int] = []
    chosen: list[WorkerView] = []
    while len(chosen) < count:
        if (rank := int(random() * size)) in ranks:
            continue
        ranks.append(rank)
        if rank >= sure:
            worker = edge[int(random() * len(edge))]
            while worker in chosen:
                worker = edge[int(random() * len(edge))]
        else:
            worker = member_at(buckets, rank)
        chosen.append(worker)
    return chosen


def member_at(groups: Sequence[list[WorkerView]], at: int) -> WorkerView:
    """Return the Worker at this place of all groups, one behind the other."""
    for group in groups:
        if at < len(group):
            break
        at -= len(group)
    return group[at]


def _draw_preferred(pool: PoolView, count: int, preferred: frozenset[str], rng: Random) -> list[WorkerView]:
    """Return Workers of the tier with the most preferred labels, then others as if no label were preferred.

    Labels break the ties of rank, so all of the tier's last bucket takes part, up to LABELS_READ_MAX.
    """
    by_matches: dict[int, list[WorkerView]] = {}
    for worker in islice(_from_anywhere(bottom_tier(pool), rng), LABELS_READ_MAX):
        matches = len(preferred & worker.labels) if worker.labels else 0
        if matches:
            by_matches.setdefault(matches, []).append(worker)
    chosen: list[WorkerView] = []
    for matches in sorted(by_matches, reverse=True):
        equals = by_matches[matches]
        chosen += rng.sample(equals, min(count - len(chosen), len(equals)))
    if len(chosen) < count:
        others = draw(pool, count + len(chosen), NO_LABELS, rng)
        chosen += [worker for worker in others if worker not in chosen][: count - len(chosen)]
    return chosen


def _from_anywhere(tier: Tier, rng: Random) -> Iterator[WorkerView]:
    """Yield all Workers of the tier's buckets, each bucket from a random index on, so that a limit favours nobody."""
    for bucket in tier.buckets:
        start = int(rng.random() * len(bucket))
        yield from bucket[start:]
        yield from bucket[:start]


def _by_matches(pool: PoolView, preferred: frozenset[str]) -> list[list[WorkerView]]:
    """Return the Workers with the most preferred labels, then those with fewer, down to none."""
    found: dict[int, list[WorkerView]] = {}
    for labels, workers in pool.by_labels().items():
        found.setdefault(len(labels & preferred), []).extend(workers)
    return [found[matches] for matches in sorted(found, reverse=True)]


def _some_of(equals: list[WorkerView], count: int, rng: Random) -> list[WorkerView]:
    """Return up to `count` of these that are believed to have a free slot: a quarter of them the lowest, the others
    from anywhere."""
    if len(equals) > EQUALS_READ_MAX:
        equals = rng.sample(equals, EQUALS_READ_MAX)
    roomy = [worker for worker in equals if worker.key != FULL]
    rng.shuffle(roomy)
    if len(roomy) <= count:
        return roomy
    lowest = nsmallest(ceil(count * LOWEST_SHARE), roomy, key=lambda worker: worker.key)
    return lowest + [worker for worker in roomy if worker not in lowest][: count - len(lowest)]


def _anywhere(pool: PoolView, count: int, chosen: list[WorkerView], rng: Random) -> list[WorkerView]:
    """Return random members with a free slot, none of `chosen`; fewer than `count` if most members are full."""
    members, found = pool.members, list[WorkerView]()
    if len(members) <= 4 * count:
        others = [worker for worker in members if worker.key != FULL and worker not in chosen]
        return rng.sample(others, min(count, len(others)))
    for _ in range(4 * count):
        worker = members[int(rng.random() * len(members))]
        if worker.key != FULL and worker not in chosen and worker not in found:
            found.append(worker)
            if len(found) == count:
                break
    return found
