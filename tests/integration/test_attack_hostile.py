"""A short run of `make attack`: that it runs, not what it measures."""

from __future__ import annotations

import pytest

from tests.attack.attackers import KINDS
from tests.attack.rounds import Size, run, summary


@pytest.mark.release
async def test_a_hostile_tenant_attacks_and_the_honest_one_is_served() -> None:
    rounds = await run(Size(rounds=1, seconds=3.0, rate=20.0, scale=0.5, lives=4, workers=1))
    assert [each.side for each in rounds] == ["quiet", "attacked", "control"]
    found = summary(rounds)
    assert found["failed"] == 0 and found["pushes"] == 3 * 60
    assert found["ratio_p99"] > 0 and found["attacked_p99_ms"] > 0 and found["control_attacks_per_s"] > 0
    for each in rounds[1:]:
        assert {*each.answers} == {*KINDS}, "every kind of attack was made"
        assert each.answers["forged"].get("401", 0) > 0 and not each.answers["forged"].get("200")
        assert each.answers["creates"].get("201", 0) > 0 and each.refused > 0
        assert each.answers["pushes"].get("200", 0) > 0
