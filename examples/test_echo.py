"""A test of a runtime: no deployment, no network, milliseconds."""

from __future__ import annotations

import pytest

from dhsched import testing
from examples.echo import echo


async def test_the_count_survives_a_crash_and_a_move(capsys: pytest.CaptureFixture[str]) -> None:
    async with testing.live(echo) as live:
        await live.push("one", boundary=True)
        await live.acked(1)
        await live.crash()
        await live.push("two", boundary=True)
        await live.acked(2)
        await live.move()
        await live.push("three")
        await live.acked(3)
        assert live.saved_state == {"count": 3}
    assert [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()] == ["1: one", "2: two", "3: three"]
