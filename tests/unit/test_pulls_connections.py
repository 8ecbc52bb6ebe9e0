"""The pulls of a controller when connections come and go: those of Workers, and the one to the store."""

from __future__ import annotations

from dhsched.infer.pulls import Pulls
from dhsched.ownership import outcomes as o
from tests.unit.pulling import LIVE, Peer, SlowStore, pull_of, settle


async def serving(peer: Peer) -> tuple[Pulls, SlowStore]:
    """A controller that serves one pull, whose first release found nothing."""
    store = SlowStore()
    served = Pulls(store, credit=8, controller="c1")
    served.take(pull_of(peer))
    await settle()
    store.releases.pop()[1].set_result([o.Nothing()])
    await settle()
    return served, store


async def test_every_pull_is_due_after_the_store_link_was_lost() -> None:
    served, store = await serving(Peer())
    assert store.releases == [], "it was not lost"
    served.reconnected()
    await settle()
    assert len(store.releases) == 1, "once"


async def test_a_pull_that_waits_for_its_connection_is_forgotten_when_it_is_dropped() -> None:
    peer = Peer()
    served, store = await serving(peer)
    peer.outbox.full = True
    served.on_hint(b"", LIVE.encode())
    [waiting] = peer.waiting
    assert store.releases == []
    served.drop(waiting)
    assert peer.waiting == set() and len(served) == 0
    peer.outbox.full = False
    served.drained(peer)
    await settle()
    assert store.releases == []


async def test_a_pull_goes_on_when_its_connection_has_drained() -> None:
    peer = Peer()
    served, store = await serving(peer)
    peer.outbox.full = True
    served.on_hint(b"", LIVE.encode())
    served.drained(peer)
    await settle()
    assert store.releases == [] and len(peer.waiting) == 1, "it is full still"
    peer.outbox.full = False
    served.drained(peer)
    await settle()
    assert [row.live for rows, _ in store.releases for row in rows] == [LIVE] and peer.waiting == set()


async def test_all_pulls_of_a_lost_connection_are_dropped_and_no_others() -> None:
    peer, other = Peer(), Peer()
    served, _ = await serving(peer)
    served.take(pull_of(other, "t/b"))
    await settle()
    peer.outbox.full = True
    served.on_hint(b"", LIVE.encode())
    served.drop_all(peer)
    assert peer.waiting == set() and len(served) == 1
    assert served.find(other, "t/b", 1) is not None and served.find(peer, LIVE, 1) is None
    assert served.find(peer, "t/b", 1) is None and served.find(other, "t/b", 2) is None, (
        "of another connection or epoch"
    )
