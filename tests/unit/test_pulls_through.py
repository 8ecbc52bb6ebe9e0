"""Appends that go through to the pull which waits for them: one call stores and releases."""

from __future__ import annotations

from typing import Any

from dhsched.infer.pulls import Pulls
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import UNMARKED
from dhsched.store.steps.redis import Append
from tests.unit.pulling import LIVE, Peer, SlowStore, pull_of, settle


class Hearing(Peer):
    """A Worker's connection that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox.put = self.heard  # type: ignore[method-assign, assignment]
        self.said: list[Any] = []

    def heard(self, message: Any, size: int = 0) -> None:
        self.said.append(message)


async def serving_caught_up() -> tuple[Pulls, SlowStore, list[Any], Hearing]:
    """A controller that serves one pull, which has been passed item 1 and waits for the next."""
    store, peer, told = SlowStore(), Hearing(), list[Any]()
    served = Pulls(store, credit=8, controller="c1")
    served.take(pull_of(peer))
    await settle()
    store.releases.pop()[1].set_result([o.Items(1, (b"t" + UNMARKED + b"one",))])
    await settle()
    peer.said.clear()
    return served, store, told, peer


async def test_an_append_to_a_pull_that_waits_for_it_needs_no_release() -> None:
    served, store, told, peer = await serving_caught_up()
    served.append_soon(Append(LIVE, b"ttwo", "p", 1), told.append)
    await settle()
    [(rows, controller, answer)] = store.appends
    assert rows == [Append(LIVE, b"ttwo", "p", 1, "", b"A#1 1 1 1 00000000")] and controller == "c1"
    answer.set_result([o.Appended(2, b"deadbeef")])
    await settle()
    assert [each.items for each in peer.said] == [[b"tdeadbeeftwo"]]
    assert told == [o.Appended(2, b"deadbeef")] and not store.releases and served.released == 2


async def test_the_second_append_of_a_tick_is_released_behind_the_first() -> None:
    served, store, told, peer = await serving_caught_up()
    for n in (1, 2):
        served.append_soon(Append(LIVE, b"tmore", "p", n), told.append)
    await settle()
    [(rows, _, answer)] = store.appends
    assert [row.through for row in rows] == [b"A#1 1 1 1 00000000", b""] and not store.releases
    answer.set_result([o.Appended(2, b"deadbeef"), o.Appended(3)])
    await settle()
    [(asked, _)] = store.releases
    assert [row.pull for row in asked] == [b"A#1 1 1 2 deadbeef"] and len(peer.said) == 1


async def test_an_append_that_went_through_to_an_earlier_pull_makes_the_new_one_due() -> None:
    served, store, told, _ = await serving_caught_up()
    served.append_soon(Append(LIVE, b"ttwo", "p", 1), told.append)
    await settle()
    later = Hearing()
    served.take(pull_of(later, pull_no=2, after=1))
    await settle()
    store.releases.pop()[1].set_result([o.Nothing()])
    await settle()
    store.appends[0][2].set_result([o.Appended(2, b"deadbeef")])
    await settle()
    assert later.said == [] and [row.pull for rows, _ in store.releases for row in rows] == [b"A#1 1 2 1 00000000"]


async def test_under_load_releases_gather_what_appends_have_stored() -> None:
    served, store, told, _ = await serving_caught_up()
    served.take(pull_of(Hearing(), "t/b"))
    await settle()
    store.releases.pop()[1].set_result([o.Items(1, (b"t" + UNMARKED + b"one",))])
    await settle()
    served.append_soon(Append("t/b", b"ttwo", "p", 1), told.append)
    await settle()
    served.append_soon(Append(LIVE, b"ttwo", "p", 1), told.append)
    await settle()
    assert [bool(row.through) for rows, _, _ in store.appends for row in rows] == [True, False]
    assert [row.live for rows, _ in store.releases for row in rows] == [LIVE]


async def test_nothing_goes_through_to_a_connection_that_is_full() -> None:
    served, store, told, peer = await serving_caught_up()
    peer.outbox.full = True
    served.append_soon(Append(LIVE, b"ttwo", "p", 1), told.append)
    await settle()
    assert [row.through for rows, _, _ in store.appends for row in rows] == [b""] and not store.releases
