"""What an Infer-Controller keeps of lives and pushes, as the garbage collector sees it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from dhsched.infer.append_rules import request_ids
from dhsched.infer.pulls import Pulls
from dhsched.ownership import outcomes as o
from dhsched.store.steps.redis import Append
from tests.unit.pulling import Peer, SlowStore, pull_of, settle


async def test_a_served_pull_is_nothing_that_the_collector_looks_at() -> None:
    store = SlowStore()
    served = Pulls(store, credit=8, controller="c1")
    pull = pull_of(Peer())
    served.take(pull)
    await settle()
    store.releases.pop()[1].set_result([o.Nothing()])
    await settle()
    assert len(served) == 1 and not gc.is_tracked(pull)


async def test_pulls_that_wait_for_a_connection_are_freed_with_it_although_nothing_collects_them() -> None:
    """A pull refers to its connection, and a waiting pull is referred to by it: the collector cannot end that."""
    store = SlowStore()
    served = Pulls(store, credit=8, controller="c1")
    peer = Peer()
    peer.outbox.full = True
    for live in ("t/a", "t/b"):
        served.take(pull_of(peer, live))
    await settle()
    assert len(peer.waiting) == 2
    gone = weakref.ref(peer)
    # A connection that is gone, while the store still answers.
    served.drop_all(peer)
    served.reconnected()
    await settle()
    assert len(served) == 0 and not peer.waiting
    peer.outbox = None  # type: ignore[assignment]  # It refers to its connection too; the collector ends that.
    del peer
    assert gone() is None


async def test_a_push_whose_client_has_gone_is_stored_and_keeps_nothing() -> None:
    store = SlowStore()
    served = Pulls(store, credit=8, controller="c1")
    first, second = (served.append(Append("t/a", item, request=item.decode())) for item in (b"x", b"y"))
    await settle()
    first.cancel()
    await settle()
    [(rows, _, answer)] = store.appends
    assert [row.item for row in rows] == [b"x", b"y"]
    answer.set_result([o.Appended(1), o.Appended(2)])
    await settle()
    assert await second == o.Appended(2)
    with pytest.raises(asyncio.CancelledError):
        first.result()
    assert served._appending == 0 and not served._pushed


def test_request_ids_differ_between_streams_and_within_one() -> None:
    streams = [request_ids() for _ in range(3)]
    made = [new() for _ in range(100) for new in streams]
    assert len({*made}) == 300 and all(each.startswith("r-") and len(each) <= 64 for each in made)
