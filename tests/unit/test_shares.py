"""Shares of the requests in flight: a key takes what others leave, and whoever comes next finds a place."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from dhsched.access.callers import ROLES, Caller
from dhsched.web.problems import Problem
from dhsched.web.proxies import AddressLimit, proxies
from dhsched.web.shares import Connections, InFlight, Load


def fill(load: InFlight, *callers: tuple[str, str]) -> Counter[tuple[str, str]]:
    """Let all callers begin in turn for as long as any of them may."""
    begun: Counter[tuple[str, str]] = Counter()
    while able := [caller for caller in callers if load.share_left(*caller) > 0]:
        for caller in able:
            if load.share_left(*caller) > 0:
                load.begin(*caller)
                begun[caller] += 1
    return begun


@pytest.mark.parametrize("most", [1, 2, 3, 8, 512])
def test_one_key_alone_gets_half(most: int) -> None:
    assert fill(InFlight(most), ("t", "a"))["t", "a"] == (most + 1) // 2


def test_two_keys_get_the_same_share() -> None:
    begun = fill(InFlight(512), ("t", "a"), ("t", "b"))
    assert sorted(begun.values()) == [171, 171]


def test_many_keys_of_a_tenant_leave_a_place_for_each_other_and_for_other_tenants() -> None:
    load = InFlight(512)
    begun = fill(load, *(("t", f"k{n}") for n in range(20)))
    assert max(begun.values()) - min(begun.values()) <= 1
    assert load.share_left("t", "new") > 0 and load.share_left("other", "new") > 50


def test_below_half_of_the_limit_nobody_is_refused() -> None:
    """The server relies on it, and computes no share there."""
    rng = Random(4)
    callers = [(f"t{n % 3}", f"k{n}") for n in range(7)]
    for most in (1, 5, 64):
        load = InFlight(most)
        while 2 * load.total < most:
            assert all(load.share_left(*caller) > 0 for caller in callers)
            load.begin(*rng.choice(callers))


def test_only_a_crowded_replica_refuses() -> None:
    """The server asks for a share before it reads a body only while `crowded` is set, or requests wait."""
    rng = Random(5)
    callers = [Caller(f"k{n}", "app", f"t{n % 2}", ROLES["app"]) for n in range(5)]
    for most in (1, 2, 7, 64):
        load = Load(most)
        load.fair = True
        begun: list[Caller] = []
        refused = 0
        for _ in range(20 * most):
            caller = rng.choice(callers)
            try:
                load.refuse(caller)
            except Problem:
                assert load.crowded
                refused += 1
            else:
                load.begin(caller.tenant, caller.key)
                begun.append(caller)
            if begun and rng.random() < 0.3:
                ended = begun.pop(rng.randrange(len(begun)))
                load.end(ended.tenant, ended.key)
            assert load.crowded == (2 * len(begun) >= most)
        assert refused
    nothing_free = Load(0)
    assert nothing_free.crowded
    with pytest.raises(Problem):
        nothing_free.refuse(callers[0])


def test_what_has_ended_leaves_nothing() -> None:
    load = InFlight(4)
    load.begin("t", "a")
    load.end("t", "a")
    assert (load.total, load.share_left("t", "a")) == (0, 4)
    assert not load._by_key and not load._by_tenant
    connections = Connections(2)
    with connections.counted("a"), connections.counted("a"):
        assert (connections.of("a"), connections.of("b")) == (2, 0)
    assert not connections._by_key


def test_connections_of_an_address_are_counted_by_site() -> None:
    limit = AddressLimit(2, proxies("10.0.0.0/8"))
    sites = [limit.open(address) for address in ("2001:db8::1", "2001:db8::2")]
    assert limit.open("2001:db8::3") is None and limit.open("192.0.2.1") == "192.0.2.1"
    assert all(limit.open("10.1.1.1") is not None for _ in range(10))
    assert sites[0] is not None
    limit.close(sites[0])
    assert limit.open("2001:db8::3") == sites[0]
