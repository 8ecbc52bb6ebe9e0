"""The benchmark of settled replies runs and prints both in-flight sizes; its figures are for a quiet machine."""

import pytest

from dhsched.bench.settle import Size, bench_settle


@pytest.mark.release
async def test_it_measures_both_links() -> None:
    result = await bench_settle(Size(items=1_024, rounds=1), lambda _line: None)
    for in_flight in (64, 512):
        assert result[f"ratio_{in_flight}"] > 0
        assert result[f"plain_items_per_s_{in_flight}"] > 0 and result[f"settled_items_per_s_{in_flight}"] > 0
        assert result[f"plain_p50_ms_{in_flight}"] > 0 and result[f"settled_p50_ms_{in_flight}"] > 0
        assert 1 < result[f"calls_per_batch_{in_flight}"] <= in_flight
