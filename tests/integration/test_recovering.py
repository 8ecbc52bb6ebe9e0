"""Lives that need something, as operators and applications are told: it must say what `needs` says in the steps."""

from __future__ import annotations

import pytest

from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.steps.redis import RedisStore
from tests.harness.servers import empty_server

LIVE = "default/l"
IMPATIENT = Limits(ack_wait_ms=1)


async def stalled(store: RedisStore) -> str:
    """A live whose runtime was given an item and does not ack it; the Worker."""
    made = await store.register_worker(name="w", boot="b", pool="gpu", capacity=2)
    assert isinstance(made, o.Registered)
    await store.report(worker=made.worker, boot="b", link="d1")
    create = Create(digital_id="demo", fingerprint="f")
    await store.place(live=LIVE, operation="op", cause="create", create=create, candidates=[made.worker])
    await store.pull(live=LIVE, worker=made.worker, epoch=1, after=0, controller="c1")
    await store.append_input(live=LIVE, kind="text", payload=b"x", request="r1")
    await store.release_input(live=LIVE, worker=made.worker, epoch=1, pull_no=1, after=0, credit=8)
    while not isinstance(outcome := await store.look(live=LIVE), o.Recover):
        assert isinstance(outcome, o.Wake | o.Later), outcome
    assert outcome.need == "stalled"
    return made.worker


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_a_stalled_live_shows_as_stalled_until_it_acks(kind: str) -> None:
    async with empty_server(kind) as server, await RedisStore.open(server.address, limits=IMPATIENT) as store:
        worker = await stalled(store)
        rows = {row.worker: row for row in (await store.records.fleet.snapshot()).workers}
        [shown] = await store.records.recovering.among([LIVE], workers=rows, floor=0)
        assert (shown.live, shown.need, shown.worker) == (LIVE, "stalled", worker)
        assert 0 < shown.since_ms <= await store.records.server.now_ms()
        seen = await store.records.lives.progress(LIVE)
        assert seen is not None and seen.stalled
        await store.ack_input(live=LIVE, worker=worker, epoch=1, n=1)
        assert await store.records.recovering.among([LIVE], workers=rows, floor=0) == []
        seen = await store.records.lives.progress(LIVE)
        assert seen is not None and not seen.stalled, "it goes on"
