"""The pulls that a controller serves: what is asked of the store, and when. The store answers when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dhsched.errors import StoreOverloaded, StoreRefused, StoreUnavailable
from dhsched.infer import pulls
from dhsched.infer.granted_pull import QUEUED
from dhsched.infer.pulls import BYTES_FULL, CALLS_MAX, ROWS_MAX, Pulls, ServedPull
from dhsched.ownership import outcomes as o
from dhsched.store.steps.redis import Ack, Append
from dhsched.types import Generation
from tests.harness.patching import fire, timers_by_hand
from tests.unit.pulling import LIVE, Peer, SlowStore, pull_of, settle


class AckingStore(SlowStore):
    """Takes acks as well."""

    def __init__(self) -> None:
        super().__init__()
        self.acks: list[tuple[Sequence[Ack], asyncio.Future[Any]]] = []

    def ack_soon(self, rows: Sequence[Ack]) -> asyncio.Future[Any]:
        self.order.append("ack")
        self.acks.append((rows, asyncio.get_running_loop().create_future()))
        return self.acks[-1][1]


async def serving(after: int = 0) -> tuple[Pulls, SlowStore, list[Any]]:
    """A controller that serves one pull, whose first release found nothing."""
    store = SlowStore()
    told: list[Any] = []
    served = Pulls(store, credit=8, controller="c1")
    served.take(pull_of(Peer(), after=after))
    await settle()
    store.releases.pop()[1].set_result([o.Nothing()])
    await settle()
    assert not store.releases
    return served, store, told


async def test_the_release_goes_right_behind_the_append_which_asks_for_no_hint() -> None:
    served, store, told = await serving()
    served.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    served.append_soon(Append("t/elsewhere", b"tx", "p", 1), told.append)
    await settle()
    assert [(rows[0].live, controller) for rows, controller, _ in store.appends] == [(LIVE, "c1"), ("t/elsewhere", "")]
    assert [row.live for rows, _ in store.releases for row in rows] == [LIVE]


async def test_a_hint_counts_although_an_own_append_that_was_refused_is_not_heard_of_yet() -> None:
    """It published nothing: the hint is of something else, and nobody will say it again."""
    served, store, told = await serving()
    served.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    await settle()
    # All three come in one read: the two answers are heard of a tick later, the hint at once.
    store.appends[0][2].set_result([o.Duplicate()])
    store.releases[0][1].set_result([o.Nothing()])
    served.on_hint(b"infer:c1", LIVE.encode())
    await settle()
    assert told == [o.Duplicate()]
    assert len(store.releases) == 2


@pytest.mark.parametrize("after", [0, 100])
async def test_an_item_that_the_release_behind_it_did_not_find_is_asked_for_once_more(after: int) -> None:
    """The link sends an append again when the server has forgotten its script; the release then ran first."""
    served, store, told = await serving(after)
    served.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    await settle()
    store.releases[0][1].set_result([o.Nothing()])
    await settle()
    store.appends[0][2].set_result([o.Appended(after + 1)])
    await settle()
    assert len(store.releases) == 2
    store.releases[1][1].set_result([o.Nothing()])  # Held back: it is not asked for again and again.
    await settle()
    assert len(store.releases) == 2


async def test_an_append_that_nobody_answered_may_have_run() -> None:
    served, store, told = await serving()
    served.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    await settle()
    store.releases[0][1].set_result([o.Nothing()])
    await settle()
    store.appends[0][2].set_exception(StoreUnavailable("no answer", unknown=True))
    await settle()
    assert [type(each) for each in told] == [StoreUnavailable]
    assert len(store.releases) == 2


async def test_a_pull_that_was_granted_meanwhile_is_served_what_was_stored_meanwhile() -> None:
    store = SlowStore()
    told: list[Any] = []
    served = Pulls(store, credit=8, controller="c1")
    served.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    await settle()
    served.take(pull_of(Peer()))
    await settle()
    store.releases[0][1].set_result([o.Nothing()])
    store.appends[0][2].set_result([o.Appended(1)])
    await settle()
    assert len(store.releases) == 2


async def test_a_call_that_ended_at_one_row_is_sent_again_row_by_row() -> None:
    store = SlowStore()
    told: dict[str, list[Any]] = {"a": [], "b": []}
    served = Pulls(store, credit=8, controller="c1")
    for live, heard in told.items():
        served.append_soon(Append(f"t/{live}", b"tx", "p", 1), heard.append)
    await settle()
    damaged = StoreRefused("wrong type", code="WRONGTYPE")
    store.appends[0][2].set_exception(damaged)
    await settle()
    assert [[row.live for row in rows] for rows, _, _ in store.appends[1:]] == [["t/a"], ["t/b"]]
    store.appends[1][2].set_result([o.Duplicate()])  # Stored before the call came to the damaged one.
    store.appends[2][2].set_exception(damaged)
    await settle()
    assert told == {"a": [o.Duplicate()], "b": [damaged]}


def deaf(_: object) -> None:
    raise RuntimeError("not now")


async def test_one_who_does_not_want_to_know_does_not_keep_it_from_the_others() -> None:
    store = SlowStore()
    told: list[Any] = []
    served = Pulls(store, credit=8, controller="c1")
    served.append_soon(Append(LIVE, b"tx", "p", 1), deaf)
    served.append_soon(Append(LIVE, b"tx", "p", 2), told.append)
    await settle()
    store.appends[0][2].set_result([o.Appended(1), o.Appended(2)])
    await settle()
    assert told == [o.Appended(2)]


async def test_what_waits_behind_calls_that_failed_is_sent() -> None:
    """The two calls under way fail, and those they were for have gone: nobody else would send the third."""
    store, peers = SlowStore(), [Peer(), Peer(), Peer()]
    served = Pulls(store, credit=8, controller="c1")
    for n, peer in enumerate(peers):
        served.take(pull_of(peer, f"t/{n}"))
        await settle()
    assert len(store.releases) == 2
    for peer in peers[:2]:
        served.drop_all(peer)
    for _, answer in [*store.releases]:
        answer.set_exception(StoreUnavailable("no answer", unknown=True))
    await settle()
    assert [row.live for rows, _ in store.releases[2:] for row in rows] == ["t/2"]


async def test_only_so_many_items_wait_for_a_slow_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls, "APPENDS_MAX", 3)
    store = SlowStore()
    told: list[Any] = []
    served = Pulls(store, credit=8, controller="c1")
    for n in range(1, 5):
        served.append_soon(Append(LIVE, b"tx", "p", n), told.append)
    assert told == []  # Whoever appends is not called back before it has returned.
    await settle()
    assert [type(each) for each in told] == [StoreOverloaded]
    store.appends[0][2].set_result([o.Appended(1), o.Appended(2), o.Appended(3)])
    await settle()
    served.append_soon(Append(LIVE, b"tx", "p", 4), told.append)
    await settle()
    assert len(store.appends) == 2


async def test_calls_are_bounded_and_keep_their_order() -> None:
    store = SlowStore()
    told: list[Any] = []
    served = Pulls(store, credit=8, controller="c1")
    for n in range(1, 2 * ROWS_MAX + 2):
        served.append_soon(Append(LIVE, b"tx", "p", n), told.append)
    for n in range(3):
        served.append_soon(Append(f"t/large{n}", b"t" * BYTES_FULL), told.append)
    await settle()
    sizes = [len(rows) for rows, _, _ in store.appends]
    assert sizes == [ROWS_MAX, ROWS_MAX, 2, 1, 1]
    assert [row.n for rows, _, _ in store.appends for row in rows if row.live == LIVE] == [*range(1, 2 * ROWS_MAX + 2)]


async def acking(lives: int = 1) -> tuple[Pulls, AckingStore, list[ServedPull]]:
    """A controller that serves a few pulls, each of which has had eight items; nothing is under way."""
    store, peer = AckingStore(), Peer()
    served = Pulls(store, credit=8, controller="c1")
    granted = [pull_of(peer, f"t/{n}", after=8) for n in range(lives)]
    for pull in granted:
        served.take(pull)
    await settle()
    store.releases.pop()[1].set_result([o.Nothing()] * lives)
    await settle()
    assert not served.releasing
    store.order.clear()
    return served, store, granted


def messages_to(pull: ServedPull) -> list[Any]:
    return [message for message, _ in pull.peer.outbox._messages]


async def test_a_tick_sends_acks_then_appends_then_releases() -> None:
    served, store, (pull, other) = await acking(2)
    served.on_hint(b"infer:c1", other.live.encode())
    served.append_soon(Append(pull.live, b"tx", "p", 1), deaf)
    served.ack_soon(pull, 8, b"m", None)
    await settle()
    assert store.order == ["ack", "append", "release"]
    assert [row.live for row in store.releases[0][0]] == [other.live, pull.live]


async def test_an_ack_that_opens_the_window_makes_a_release_due_and_another_one_does_not() -> None:
    served, store, (pull,) = await acking()
    assert pull.at_window
    served.ack_soon(pull, 8, b"m", None)
    await settle()
    store.acks[0][1].set_result([o.Acked(8, False)])
    await settle()
    assert len(store.releases) == 1
    store.releases[0][1].set_result([o.Nothing()])
    served.ack_soon(pull, 8, b"m", None)
    await settle()
    store.acks[1][1].set_result([o.Acked(8, False)])
    await settle()
    assert len(store.releases) == 1


async def test_an_ack_that_is_queued_is_replaced_and_one_that_was_sent_is_not() -> None:
    served, store, (pull,) = await acking()
    served.ack_soon(pull, 5, b"5", b"five")
    served.ack_soon(pull, 6, b"6", None)
    served.ack_soon(pull, 4, b"4", None)
    await settle()
    served.ack_soon(pull, 3, b"3", None)  # As after a refusal: what was sent does not stand for what comes later.
    await settle()
    assert [[(row.n, row.mark, row.saved) for row in rows] for rows, _ in store.acks] == [
        [(6, b"6", b"five")],
        [(3, b"3", None)],
    ]


async def test_acks_of_a_call_that_failed_are_merged_with_what_was_asked_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = timers_by_hand(monkeypatch)
    served, store, granted = await acking(3)
    for pull in granted:
        served.ack_soon(pull, 5, b"5", b"five")
    await settle()
    store.acks[0][1].set_exception(StoreUnavailable("no answer", unknown=True))
    served.ack_soon(granted[1], 7, b"7", None)
    served.ack_soon(granted[2], 7, b"7", b"seven")
    await settle()
    fire(timers)
    await settle()
    # The second call had left before the first was known to have failed: both that it carries are there twice.
    asked = [[(row.live, row.n, row.mark, row.saved) for row in rows] for rows, _ in store.acks[1:]]
    assert asked == [
        [("t/1", 7, b"7", None), ("t/2", 7, b"7", b"seven")],
        [("t/0", 5, b"5", b"five"), ("t/1", 5, b"5", b"five"), ("t/2", 5, b"5", b"five")],
    ]


async def test_a_failed_ack_yields_to_a_later_one_that_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = timers_by_hand(monkeypatch)
    served, store, granted = await acking(2 + CALLS_MAX)
    served.ack_soon(granted[0], 5, b"5", b"five")
    await settle()
    store.acks[0][1].set_exception(StoreUnavailable("no answer", unknown=True))
    await settle()
    for pull in granted[2:]:
        served.ack_soon(pull, 1, b"1", None)
        await settle()
    # As many calls as may be are under way: this one waits, and meets the one that failed.
    served.ack_soon(granted[0], 7, b"7", None)
    await settle()
    fire(timers)
    await settle()
    assert len(store.acks) == 1 + CALLS_MAX
    store.acks[1][1].set_result([o.Acked(1, False)])
    await settle()
    assert [(row.n, row.mark, row.saved) for row in store.acks[-1][0]] == [(7, b"7", b"five")]


async def test_a_release_that_failed_is_asked_for_again_with_the_same_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = timers_by_hand(monkeypatch)
    served, store, (pull, gone) = await acking(2)
    served.reconnected()
    await settle()
    store.releases[0][1].set_exception(StoreUnavailable("no answer", unknown=True))
    served.drop(gone)
    await settle()
    fire(timers)
    await settle()
    assert [[*rows] for rows, _ in store.releases[1:]] == [[store.releases[0][0][0]]]
    store.releases[1][1].set_result([o.Items(9, (b"t12345678x",))])
    await settle()
    assert pull.after == 9 and len(store.releases) == 2


@pytest.mark.parametrize("kind", ["ack", "release"])
async def test_rows_of_a_call_that_ended_half_way_are_alone_in_the_next_ones(kind: str) -> None:
    served, store, granted = await acking(3)
    for pull in granted:
        if kind == "ack":
            served.ack_soon(pull, 8, b"m", None)
        else:
            served.on_hint(b"infer:c1", pull.live.encode())
    await settle()
    calls: list[Any] = store.acks if kind == "ack" else store.releases
    calls[0][1].set_exception(StoreRefused("wrong type", code="WRONGTYPE"))
    await settle()
    assert [[*rows] for rows, _ in calls[1:]] == [[row] for row in calls[0][0]]


async def test_a_call_that_was_refused_as_a_whole_is_not_split() -> None:
    store, told = SlowStore(), list[Any]()
    served = Pulls(store, credit=8, controller="c1")
    for n in (1, 2):
        served.append_soon(Append(LIVE, b"tx", "p", n), told.append)
    await settle()
    store.appends[0][2].set_exception(StoreRefused("full", code="OOM"))
    await settle()
    assert len(store.appends) == 1 and [type(each) for each in told] == [StoreRefused] * 2


async def test_so_many_calls_are_under_way_and_what_waits_shares_the_next_one() -> None:
    served, store, granted = await acking(6)
    for pull in granted:
        served.on_hint(b"infer:c1", pull.live.encode())
        await settle()
    assert [len(rows) for rows, _ in store.releases] == [1] * CALLS_MAX
    store.releases[0][1].set_result([o.Nothing()])
    await settle()
    assert [len(rows) for rows, _ in store.releases] == [*[1] * CALLS_MAX, 6 - CALLS_MAX]


async def test_what_is_pushed_does_not_wait_for_calls_to_come_back() -> None:
    store = SlowStore()
    served = Pulls(store, credit=8, controller="c1")
    for n in range(2 * CALLS_MAX):
        served.append_soon(Append(LIVE, b"tx", "p", n), deaf)
        await settle()
    assert len(store.appends) == 2 * CALLS_MAX


async def test_a_pull_whose_connection_is_full_waits_until_it_has_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    served, store, (slow, quick) = await acking(2)
    quick.peer = Peer()
    slow.peer.outbox.full = True
    served.reconnected()
    served.reconnected()
    await settle()
    assert [row.live for rows, _ in store.releases for row in rows] == [quick.live]
    assert slow.peer.waiting == {slow}
    served.drained(slow.peer)
    await settle()
    assert len(store.releases) == 1
    slow.peer.outbox.full = False
    served.drained(slow.peer)
    served.drained(slow.peer)
    await settle()
    assert [row.live for rows, _ in store.releases[1:] for row in rows] == [slow.live]
    assert not slow.peer.waiting


async def test_of_two_pulls_the_later_one_is_served_and_an_older_generation_is_told() -> None:
    served, _, (first,) = await acking()
    again, newer, late = (pull_of(Peer(), first.live, epoch=e, pull_no=n) for e, n in ((1, 2), (2, 3), (1, 4)))
    served.take(again)
    assert served.find(first.peer, first.live, 1) is None and served.find(again.peer, first.live, 1) is again
    for pull in (newer, late):
        served.take(pull)
    assert served.find(newer.peer, first.live, 2) is newer and len(served) == 1
    assert [type(each).__name__ for each in messages_to(again)] == ["Stale"]
    assert not messages_to(first) and not messages_to(late)
    # Another home has forgotten the newer one, and has granted an older one once more.
    served.take(granted := pull_of(Peer(), first.live, epoch=1, home="another"))
    assert served.find(granted.peer, first.live, 1) is granted and granted.serving is QUEUED
    assert [type(each).__name__ for each in messages_to(newer)] == ["Stale"]


async def test_what_the_fence_refused_is_counted_said_and_dropped() -> None:
    served, store, (pull, superseded, acked) = await acking(3)
    served.on_hint(b"infer:c1", pull.live.encode())
    served.on_hint(b"infer:c1", superseded.live.encode())
    served.ack_soon(acked, 8, b"m", None)
    await settle()
    store.releases[0][1].set_result([o.Stale(Generation("B#1", 2)), o.Stale(Generation("A#1", 1), 2)])
    store.acks[0][1].set_result([o.Stale(None)])
    await settle()
    assert (served.stale_releases, served.stale_acks, len(served)) == (2, 1, 0)
    assert [(type(each).__name__, each.live) for each in messages_to(pull)] == [("Stale", "t/0"), ("Stale", "t/2")]
