"""The pulls that a controller holds: what is asked of the store, and when. The store answers when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dhsched.errors import StoreOverloaded, StoreRefused, StoreUnavailable
from dhsched.infer import held
from dhsched.infer.held import APPEND_BYTES_FULL, ROWS_MAX, Held, Holder
from dhsched.outbox import Outbox
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import UNMARKED
from dhsched.store.redis import Ack, Append, RedisStore, Release

LIVE = "t/a"


class SlowStore(RedisStore):
    """Every call is a future that the test answers, with the outcomes of its rows."""

    def __init__(self) -> None:
        self.appends: list[tuple[Sequence[Append], str, asyncio.Future[Any]]] = []
        self.releases: list[tuple[Sequence[Release], asyncio.Future[Any]]] = []

    def append_soon(
        self, rows: Sequence[Append], controller: str, pending_max: int | None = None
    ) -> asyncio.Future[Any]:
        self.appends.append((rows, controller, asyncio.get_running_loop().create_future()))
        return self.appends[-1][2]

    def release_soon(self, rows: Sequence[Release], credit: int) -> asyncio.Future[Any]:
        self.releases.append((rows, asyncio.get_running_loop().create_future()))
        return self.releases[-1][1]

    def ack_soon(self, rows: Sequence[Ack]) -> asyncio.Future[Any]:
        raise AssertionError(f"nothing was consumed: {rows}")

    def outcomes_of(self, reply: Any) -> list[Any]:
        return [*reply]


class Peer:
    """A Worker's connection that takes everything."""

    def __init__(self) -> None:
        self.worker = "A#1"
        self.waiting: set[Held] = set()
        self.outbox = Outbox(self.send)

    async def send(self, frame: bytes) -> None:
        raise AssertionError(f"nothing was to be sent: {frame!r}")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def holding(after: int = 0) -> tuple[Holder, SlowStore, list[Any]]:
    """A controller that holds one pull, whose first release found nothing."""
    store = SlowStore()
    told: list[Any] = []
    holder = Holder(store, credit=8, controller="c1")
    holder.take(Held(Peer(), LIVE, 1, 1, after, UNMARKED))
    await settle()
    store.releases.pop()[1].set_result([o.Nothing()])
    await settle()
    assert not store.releases
    return holder, store, told


async def test_the_release_goes_right_behind_the_append_which_asks_for_no_hint() -> None:
    holder, store, told = await holding()
    holder.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    holder.append_soon(Append("t/elsewhere", b"tx", "p", 1), told.append)
    await settle()
    assert [(rows[0].live, controller) for rows, controller, _ in store.appends] == [(LIVE, "c1"), ("t/elsewhere", "")]
    assert [row.live for rows, _ in store.releases for row in rows] == [LIVE]


async def test_a_hint_counts_although_an_own_append_that_was_refused_is_not_heard_of_yet() -> None:
    """It published nothing: the hint is of something else, and nobody will say it again."""
    holder, store, told = await holding()
    holder.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    await settle()
    # All three come in one read: the two answers are heard of a tick later, the hint at once.
    store.appends[0][2].set_result([o.Duplicate()])
    store.releases[0][1].set_result([o.Nothing()])
    holder.on_hint(b"infer:c1", LIVE.encode())
    await settle()
    assert told == [o.Duplicate()]
    assert len(store.releases) == 2


@pytest.mark.parametrize("after", [0, 100])
async def test_an_item_that_the_release_behind_it_did_not_find_is_asked_for_once_more(after: int) -> None:
    """The link sends an append again when the server has forgotten its script; the release then ran first."""
    holder, store, told = await holding(after)
    holder.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
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
    holder, store, told = await holding()
    holder.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
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
    holder = Holder(store, credit=8, controller="c1")
    holder.append_soon(Append(LIVE, b"tx", "p", 1), told.append)
    await settle()
    holder.take(Held(Peer(), LIVE, 1, 1, 0, UNMARKED))
    await settle()
    store.releases[0][1].set_result([o.Nothing()])
    store.appends[0][2].set_result([o.Appended(1)])
    await settle()
    assert len(store.releases) == 2


async def test_a_call_that_ended_at_one_row_is_sent_again_row_by_row() -> None:
    store = SlowStore()
    told: dict[str, list[Any]] = {"a": [], "b": []}
    holder = Holder(store, credit=8, controller="c1")
    for live, heard in told.items():
        holder.append_soon(Append(f"t/{live}", b"tx", "p", 1), heard.append)
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
    holder = Holder(store, credit=8, controller="c1")
    holder.append_soon(Append(LIVE, b"tx", "p", 1), deaf)
    holder.append_soon(Append(LIVE, b"tx", "p", 2), told.append)
    await settle()
    store.appends[0][2].set_result([o.Appended(1), o.Appended(2)])
    await settle()
    assert told == [o.Appended(2)]


async def test_what_waits_behind_calls_that_failed_is_sent() -> None:
    """The two calls under way fail, and those they were for have gone: nobody else would send the third."""
    store, peers = SlowStore(), [Peer(), Peer(), Peer()]
    holder = Holder(store, credit=8, controller="c1")
    for n, peer in enumerate(peers):
        holder.take(Held(peer, f"t/{n}", 1, 1, 0, UNMARKED))
        await settle()
    assert len(store.releases) == 2
    for peer in peers[:2]:
        holder.drop_all(peer)
    for _, answer in [*store.releases]:
        answer.set_exception(StoreUnavailable("no answer", unknown=True))
    await settle()
    assert [row.live for rows, _ in store.releases[2:] for row in rows] == ["t/2"]


async def test_only_so_many_items_wait_for_a_slow_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "APPENDS_MAX", 3)
    store = SlowStore()
    told: list[Any] = []
    holder = Holder(store, credit=8, controller="c1")
    for n in range(1, 5):
        holder.append_soon(Append(LIVE, b"tx", "p", n), told.append)
    await settle()
    assert [type(each) for each in told] == [StoreOverloaded]
    store.appends[0][2].set_result([o.Appended(1), o.Appended(2), o.Appended(3)])
    await settle()
    holder.append_soon(Append(LIVE, b"tx", "p", 4), told.append)
    await settle()
    assert len(store.appends) == 2


async def test_calls_are_bounded_and_keep_their_order() -> None:
    store = SlowStore()
    told: list[Any] = []
    holder = Holder(store, credit=8, controller="c1")
    for n in range(1, 2 * ROWS_MAX + 2):
        holder.append_soon(Append(LIVE, b"tx", "p", n), told.append)
    for n in range(3):
        holder.append_soon(Append(f"t/large{n}", b"t" * APPEND_BYTES_FULL), told.append)
    await settle()
    sizes = [len(rows) for rows, _, _ in store.appends]
    assert sizes == [ROWS_MAX, ROWS_MAX, 2, 1, 1]
    assert [row.n for rows, _, _ in store.appends for row in rows if row.live == LIVE] == [*range(1, 2 * ROWS_MAX + 2)]
