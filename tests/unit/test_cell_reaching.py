"""Cells as a service reaches them: attempts that go on, a start with those that are there, and addresses with names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.errors import BadAddress, BadSetting, CellAway, StoreIncompatible, StoreUnavailable
from dhsched.store import reaching
from dhsched.store.link.address import Host, parse_address
from dhsched.store.reaching import ReachedCell, all_served, cell_addresses, first_reached

AWAY = StoreUnavailable("cannot reach store x", unknown=False)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("AGAIN_S", 0.0), ("TRIED_S", 0.05), ("START_S", 0.2), ("AWAY_S", 0.05), ("CHECK_S", 0.005)):
        monkeypatch.setattr(reaching, name, seconds)


def cells(*names: str) -> list[ReachedCell]:
    return [ReachedCell(name, parse_address("redis://h")) for name in names]


def connect(cell: ReachedCell) -> Any:
    """Make the cell connected; return its two links, whose state a test sets."""
    links = [SimpleNamespace(state="connected", reconnects=0) for _ in range(2)]
    cell.store, cell.records = (cast(Any, SimpleNamespace(link=link)) for link in links)
    cell.tried.set()
    cell.connected.set()
    return links


# -- addresses


def test_each_cell_has_its_own_store_or_the_one_of_all() -> None:
    found = cell_addresses("a b=rediss://u:secret@b:1/3?replicas=1", "redis://:word@shared:7")
    assert [name for name, _ in found] == ["a", "b"]
    assert [address.url() for _, address in found] == ["redis://:word@shared:7", "rediss://u:secret@b:1/3?replicas=1"]


def test_messages_name_the_cell_and_no_password() -> None:
    for _, address in cell_addresses("a b", "redis://:word@one:1,two:2?replicas=1"):
        assert "word" not in address.redacted() and "word" not in repr(address)
    (_, a), (_, b) = cell_addresses("a b", "redis://:word@one:1,two:2")
    assert a.redacted() == "redis://:***@one:1,two:2 (cell a)"
    assert b.at(Host("two", 2)).redacted() == "redis://:***@two:2 (cell b)", "a node of the cell's cluster, too"


def test_cells_without_a_store_are_refused() -> None:
    with pytest.raises(BadSetting, match="several cells need a store that runs already"):
        cell_addresses("a b=redis://h", None)
    assert len(cell_addresses("a=redis://h b=redis://i", None)) == 2
    with pytest.raises(BadAddress):
        cell_addresses("a b=http://h", "redis://h")


# -- attempts


async def test_attempts_go_on_until_one_succeeds_and_say_why_they_failed() -> None:
    [cell] = cells("a")
    outcomes: list[Any] = [AWAY, StoreIncompatible("wrong schema"), AWAY, "done"]
    troubles: list[tuple[str, str]] = []

    async def attempt() -> str:
        troubles.append((cell.trouble, str(cell.refused or "")))
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    assert await cell.until_done(attempt) == "done" and cell.tried.is_set()
    assert troubles == [
        ("its store was not reached yet", ""),
        ("cannot reach store x", ""),
        ("wrong schema", "wrong schema"),
        ("cannot reach store x", ""),
    ]
    assert cell.refused is None and cell.trouble, "it is not served yet"
    with pytest.raises(StoreUnavailable, match="cell a is not served: cannot reach store x"):
        cell.refuse_unless_served()
    cell.now_served()
    cell.refuse_unless_served()


async def test_an_error_that_is_none_of_the_store_ends_the_attempts() -> None:
    [cell] = cells("a")

    async def attempt() -> None:
        raise BadSetting("policy")

    with pytest.raises(BadSetting):
        await cell.until_done(attempt)
    assert cell.tried.is_set(), "nobody waits for it"


async def test_a_cell_can_be_reached_while_both_of_its_links_are_connected() -> None:
    [cell] = cells("a")
    assert not cell.linked and not await cell.reachable_soon()
    links = connect(cell)
    assert cell.linked and not cell.reachable, "it is not served yet"
    cell.now_served()
    assert cell.reachable and await cell.reachable_soon()
    for link in links:
        link.state = "reconnecting"
        assert not cell.reachable and not await cell.reachable_soon()
        asyncio.get_running_loop().call_later(0.01, setattr, link, "state", "connected")
        assert await cell.reachable_soon(), "it was back in time"


# -- starting


async def test_a_service_starts_with_the_first_cell_that_is_connected() -> None:
    a, b, c = all_of = cells("a", "b", "c")
    for each in (c, b):
        connect(each)
        assert await first_reached(all_of) is each, "a was not even tried"
    a.tried.set()
    assert await first_reached(all_of) is b
    connect(a)
    assert await first_reached(all_of) is a


async def test_a_service_waits_for_any_cell_and_not_for_ever() -> None:
    a, b = all_of = cells("a", "b")
    a.trouble = "cannot reach store x"
    asyncio.get_running_loop().call_later(0.1, connect, b)
    assert await first_reached(all_of) is b
    with pytest.raises(StoreUnavailable, match="no cell can be reached; a: cannot reach store x"):
        await first_reached([a])


async def test_a_store_that_can_never_be_used_is_an_error_even_if_others_can() -> None:
    a, b = all_of = cells("a", "b")
    connect(a)
    b.refused = StoreIncompatible("cell b belongs to others")
    b.tried.set()
    with pytest.raises(StoreIncompatible, match="cell b belongs to others"):
        await first_reached(all_of)


async def test_every_connected_cell_is_served_before_a_service_listens() -> None:
    a, b, c = all_of = cells("a", "b", "c")
    for each in (a, b):
        connect(each)
    waiting = asyncio.create_task(all_served(all_of))
    a.now_served()
    await asyncio.sleep(0.02)
    assert not waiting.done()
    b.now_served()
    await waiting  # Not for c.
    assert c.trouble
    with pytest.raises(StoreUnavailable, match="no cell is served; c: its store was not reached yet"):
        await all_served([c])


async def test_a_request_waits_for_a_store_that_has_just_gone_and_not_for_one_that_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [cell] = cells("a")
    with pytest.raises(CellAway, match="cell a is not served"):
        cell.refuse_if_away()
    link, _ = connect(cell)
    cell.now_served()
    cell.refuse_if_away()
    link.state = "reconnecting"
    cell.refuse_if_away()
    monkeypatch.setattr(reaching, "PATIENCE_S", 0.0)
    with pytest.raises(CellAway, match="the store of cell a cannot be reached") as away:
        cell.refuse_if_away()
    assert not away.value.unknown
    link.state = "connected"
    cell.refuse_if_away()
    monkeypatch.setattr(reaching, "PATIENCE_S", 60.0)
    link.state = "reconnecting"
    cell.refuse_if_away()  # It was back in between, so the patience begins anew.


async def test_an_outage_that_ended_while_nobody_asked_does_not_count_against_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests for a quiet cell are rare: the first ones of each failover wait, however long ago the one before was."""
    [cell] = cells("a")
    link, _ = connect(cell)
    cell.now_served()
    link.state = "reconnecting"
    cell.refuse_if_away()
    monkeypatch.setattr(reaching, "PATIENCE_S", 0.0)
    link.reconnects += 1  # It was back in between.
    cell.refuse_if_away()
    with pytest.raises(CellAway):
        cell.refuse_if_away()
