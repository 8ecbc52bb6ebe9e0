"""The recovery benchmark runs and prints what is asked for; its figures are for a quiet machine."""

import pytest

from dhsched.bench.recovery import Consumed, Size, bench_recovery, blackouts


@pytest.mark.long
async def test_nothing_is_lost_by_a_kill_and_nothing_repeated_by_a_drain() -> None:
    size = Size(workers=3, lives=24, rate=40, dispatch=1, infer=1, dense=4, dense_ms=50)
    result = await bench_recovery(size, lambda _line: None)
    assert result["recovered_fraction"] == 1.0
    assert result["lost_items"] == result["dropped"] == result["drain_consumed_twice"] == 0
    assert 0 < result["detect_ms"] <= result["reclaimed_max_ms"]
    assert result["drained_lives"] > 0 and result["blackouts"] > 0


def test_a_blackout_is_from_the_last_item_before_a_move_to_the_first_one_after() -> None:
    moved = [Consumed(1.0, "a", 1, 1), Consumed(1.2, "a", 1, 2), Consumed(1.25, "a", 2, 3), Consumed(1.3, "a", 2, 4)]
    stayed, other = [Consumed(1.0, "b", 1, 1)], [Consumed(1.0, "c", 1, 1), Consumed(9.0, "c", 2, 2)]
    assert [round(each) for each in blackouts([*moved, *stayed, *other], {"a", "b"})] == [50]
