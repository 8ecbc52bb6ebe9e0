"""The input path over real sockets: create, push, pull, ack, move, crash (paper, 4.3 and 7.4)."""

from __future__ import annotations

from pathlib import Path

from tests.integration.fleet import Record, fleet, until


async def test_pushed_text_reaches_the_runtime_in_order(tmp_path: Path, kind: str) -> None:
    record = Record()
    async with fleet(tmp_path, kind, dispatch=2) as f:
        await f.start_worker(record, "w1")
        placed = await f.create("a")
        for i in range(20):
            status, pushed = await f.push("a", f"t{i}")
            assert (status, pushed["seq"]) == (200, i + 1)
        await until(lambda: len(record.consumed) == 20, "20 items")
        assert record.texts("a") == [f"t{i}" for i in range(20)]
        assert {one.worker for one in record.consumed} == {placed["worker"]}
