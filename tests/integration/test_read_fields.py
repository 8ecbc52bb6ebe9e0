"""Many records read by one script: each row is that of its name, whatever is missing, on both links of a replica."""

from __future__ import annotations

import pytest

from dhsched.bench.harness import place, register
from dhsched.store.records import Records
from dhsched.store.records import part as part_of_records
from dhsched.store.steps.redis import RedisStore
from tests.harness.servers import empty_server


@pytest.mark.parametrize("names_max", [500, 2, 1])
async def test_every_row_is_that_of_its_name(kind: str, names_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_of_records, "NAMES_MAX", names_max)
    async with (
        empty_server(kind) as server,
        await RedisStore.open(server.address) as store,
        await Records.open(server.address) as reading,
    ):
        workers = [await register(store, f"w{n}", "p", 10) for n in range(5)]
        await store.report(worker=workers[3], boot="boot-w3", link="d1")
        await store.expire_worker(worker=workers[1], beat=1)
        await store.set_worker(worker=workers[4], verb="cordon")
        placed = [await place(store, f"t/l{n}", pools=["p"]) for n in range(3)]
        held = {each.generation.worker for each in placed}
        out = next(worker for worker in (workers[0], workers[2], workers[3]) if worker in held)
        await store.set_worker(worker=out, verb="exit")
        for records in (store.records, reading):  # The link of steps adds an argument to every script.
            beats = await records.workers.beats()
            assert beats.keys() == {*workers} - {out}, "without the one that is gone"
            assert beats[workers[1]].lost and not beats[workers[4]].lost
            assert beats[workers[4]].mode == "cordoned" and beats[workers[1]].mode == "ready"
            assert all(each.beat == (2 if worker == workers[3] else 1) for worker, each in beats.items())
            found = await records.lives.generations(["t/none", "t/l1", "t/l0"])
            assert found == {"t/l1": placed[1].generation, "t/l0": placed[0].generation}
            times = await records.lives.times(["t/l0", "t/none", "t/l2"])
            assert times[1] is None and times[0] is not None and times[2] is not None
            assert times[0].epoch == 1 and times[0].committed_at and not times[0].claimed_at
            assert await records.lives.times([]) == [] and await records.lives.generations([]) == {}
