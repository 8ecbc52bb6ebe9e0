"""The store benchmark runs and names its server; its figures are for a quiet machine."""

import pytest

from dhsched.bench.store import Size, bench_store


@pytest.mark.release
async def test_it_measures_steps_and_whole_items() -> None:
    result = await bench_store(Size(lives=1_500, workers=8, rounds=2, per_round=256), lambda _line: None)
    assert result["server"].split()[0] in ("valkey", "redis")
    assert result["place_round_trips"] == 1
    assert result["item_shared_over_bare"] > 0 and result["item_shared_server_us"] > 0
    assert all(result[f"ack_{kib}_kib_server_us"] >= 0 for kib in (0, 1, 4, 64))
    sizes = [(kib, result[f"state_{kib}_kib_live_bytes"]) for kib in (1, 4, 64)]
    assert all(kib * 1_000 < used < kib * 2_100 + 1_000 for kib, used in sizes), sizes
    assert result["append_shared_over_xadd"] > 0 and result["release10_shared_over_xrange10"] > 0
