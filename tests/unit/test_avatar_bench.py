"""`dhsched bench avatar`: every figure is there. Which is the larger one is for a quiet machine to say."""

from __future__ import annotations

from tests.harness.avatar_extra import require_avatar

require_avatar()

from dhsched.bench.avatar import Size, bench_avatar


def test_every_figure_is_there() -> None:
    lines: list[str] = []
    figures = bench_avatar(Size(seconds=4, rounds=1), lines.append)
    assert len(lines) == 1
    for name in ("speech_rtf", "frame_ms", "encode_ms", "core_percent_per_talking_live", "core_percent_per_idle_live"):
        assert figures[name] > 0, name
