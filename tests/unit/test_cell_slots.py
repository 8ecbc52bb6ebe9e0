"""Where cells lie in a cluster: the slot of a cell, names on different primaries, and cells that share one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from dhsched.cells.slots import Crowded, choose_names, find_crowded
from dhsched.errors import BadId, BadSetting
from dhsched.store import keys
from dhsched.store.keys import Keys
from dhsched.store.link.address import Host
from dhsched.store.link.cluster import SLOTS, key_slot
from dhsched.store.server.shards import Shard, cell_slot, choose_cells, shard_of, shards_of

PLACES = {"c1": "A", "c2": "A", "c3": "B", "c4": "A", "c5": "B", "c6": "C", "c7": "A", "c8": "B", "c9": "C"}


def chosen(count: int, places: Mapping[str, str], primaries: str) -> list[str]:
    return choose_names(count, primaries, lambda name: places.get(name, ""))


def even_shards(count: int) -> list[Shard]:
    """So many primaries with equal shares of the slots."""
    ranges = [(n * SLOTS // count, (n + 1) * SLOTS // count - 1) for n in range(count)]
    return [Shard(f"id{n}", Host(f"10.0.0.{n}", 6379), (), (each,)) for n, each in enumerate(ranges)]


def node(n: int, host: bytes | None = b"10.0.0.1") -> list[object]:
    return [host, 7000 + n, f"id{n}".encode(), []]


# -- names


def test_names_are_the_smallest_that_lie_apart() -> None:
    assert chosen(2, PLACES, "ABC") == ["c1", "c3"]
    assert chosen(3, PLACES, "ABC") == ["c1", "c3", "c6"]


def test_more_cells_than_primaries_are_dealt_out_evenly() -> None:
    assert chosen(4, PLACES, "ABC") == ["c1", "c2", "c3", "c6"]
    assert chosen(6, PLACES, "ABC") == ["c1", "c2", "c3", "c5", "c6", "c9"]


def test_a_primary_that_no_name_falls_on_gets_no_cell() -> None:
    assert chosen(3, PLACES, "ABCD") == ["c1", "c3", "c6"]
    assert chosen(4, PLACES, "ABCD") == ["c1", "c2", "c3", "c6"]


def test_names_that_nobody_serves_are_no_names() -> None:
    assert chosen(2, {"c4": "A", "c7": "B"}, "AB") == ["c4", "c7"]
    with pytest.raises(BadSetting, match="only 2 of 3 cells have a place"):
        chosen(3, {"c4": "A", "c7": "B"}, "AB")
    with pytest.raises(BadSetting, match="only 0 of 2 cells have a place"):
        chosen(2, {}, "")


def test_names_may_have_another_stem() -> None:
    assert choose_names(2, "A", lambda name: "A", stem="eu-") == ["eu-1", "eu-2"]


@pytest.mark.parametrize("primaries", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("count", [2, 3, 7, 16, 64])
def test_in_a_cluster_every_primary_has_as_many_cells_as_any_other_or_one_less(primaries: int, count: int) -> None:
    shards = even_shards(primaries)
    names = choose_cells(shards, count)
    assert len({*names}) == count
    on = Counter(shard.id for name in names if (shard := shard_of(shards, name)) is not None)
    assert sum(on.values()) == count
    loads = [on[shard.id] for shard in shards]
    assert max(loads) - min(loads) <= 1
    assert choose_cells(shards, count) == names, "the same cluster gives the same names"


# -- slots


def test_every_key_of_a_cell_has_the_slot_of_the_cell() -> None:
    for cell in ("main", "c1", "eu.west-1"):
        kinds = (*keys.SINGLE, *keys.PER_LIVE, *keys.PER_WORKER, *keys.PER_POOL, *keys.OTHER, keys.NEVER)
        assert {key_slot(Keys(cell).of(kind, "x")) for kind in kinds} == {cell_slot(cell)}
    with pytest.raises(BadId):
        cell_slot("not a name")


# -- shards


def test_a_shard_has_all_ranges_of_its_primary() -> None:
    reply = [
        [0, 99, node(1), node(4)],
        [100, 199, node(2, b"10.0.0.2"), node(5), node(6)],
        [200, SLOTS - 1, node(1), node(4)],
    ]
    first, second = shards_of(reply, "seed")
    assert first == Shard("id1", Host("10.0.0.1", 7001), (Host("10.0.0.1", 7004),), ((0, 99), (200, SLOTS - 1)))
    assert (second.primary, len(second.replicas)) == (Host("10.0.0.2", 7002), 2)
    assert [slot for slot in (0, 99, 100, 199, 200) if first.serves(slot)] == [0, 99, 200]


@pytest.mark.parametrize("unnamed", [None, b"", b"?"])
def test_a_node_that_does_not_know_its_name_is_at_the_host_that_was_asked(unnamed: bytes | None) -> None:
    [shard] = shards_of([[0, SLOTS - 1, node(1, unnamed), node(2)]], "seed")
    assert (shard.primary, shard.replicas) == (Host("seed", 7001), (Host("10.0.0.1", 7002),))


def test_a_slot_that_no_node_has_is_on_no_shard() -> None:
    shards = shards_of([[0, 99, node(1)]], "seed")
    assert cell_slot("main") > 99 and shard_of(shards, "main") is None


# -- cells that share a primary


def test_cells_that_share_a_primary_while_another_has_none_are_found() -> None:
    assert find_crowded({"a": "A", "b": "B", "c": "B"}, "ABC") == Crowded(("b", "c"), "B", "C")
    assert find_crowded({"a": "A", "b": "A", "c": "B", "d": "B", "e": "B"}, "ABC") == Crowded(("c", "d", "e"), "B", "C")


@pytest.mark.parametrize(
    ("places", "primaries"),
    [
        ({"a": "A", "b": "B", "c": "C"}, "ABC"),
        ({"a": "A", "b": "B"}, "ABC"),
        ({"a": "A", "b": "A", "c": "B"}, "AB"),
        ({"a": "A", "b": "A"}, "A"),
        ({}, "ABC"),
    ],
)
def test_cells_that_lie_as_far_apart_as_they_can_are_fine(places: dict[str, str], primaries: str) -> None:
    assert find_crowded(places, primaries) is None
