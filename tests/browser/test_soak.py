"""Ten minutes with a move every twenty seconds: neither what a viewer waits for nor what the room holds grows.

Prints what it measured, as one JSON object; docs/guides/room.md has such figures.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.browser.watching import Stage, Watching

SECONDS = int(os.environ.get("DHSCHED_SOAK_S", "600"))
EVERY_S, MOVE_S = 5, 20
KINDS = ("video", "audio")


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 2 + 120)
async def test_ten_minutes_with_moves(theatre: Stage) -> None:
    page = await theatre.watch()
    await page.until_playing(1)
    await page.page.click("#sound")
    await asyncio.sleep(20)  # A browser that has just begun plays away what it began with.
    samples: list[dict[str, float]] = []
    moves = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await page.look()
    while loop.time() - began < SECONDS:
        await asyncio.sleep(EVERY_S)
        found = await page.look()
        samples.append({**delays(before, found), "rss_mb": rss_mb(theatre.room.pid)})
        before = found
        if loop.time() - began >= (moves + 1) * MOVE_S:
            moves += 1
            await theatre.fleet.push("demo", "A sentence on the way.", boundary=True)
            assert (await theatre.fleet.reassign("demo"))[0] == 200
    figures = summary(samples)
    figures |= {"moves": moves, "seconds": SECONDS, **await seen_gaps(page)}
    print(json.dumps(figures))
    assert before["connects"] == 1 and before["state"]["on_air"] >= moves, "the same page, on the latest generation"
    third = len(samples) // 3
    for what in ("video_ms", "audio_ms"):
        middle, last = (median(each[what] for each in part) for part in (samples[third:-third], samples[-third:]))
        assert last < middle + 100, f"{what} creeps: {middle:.0f} in the middle, {last:.0f} at the end"
    assert figures["video_own_ms_max"] < 200
    assert samples[-1]["rss_mb"] - samples[third]["rss_mb"] < 20, "the room's memory grows"


def delays(before: dict[str, Any], now: dict[str, Any]) -> dict[str, float]:
    """Mean delays between two looks, in milliseconds."""
    found: dict[str, float] = {}
    for kind in KINDS:
        a, b = before[kind], now[kind]
        count = max(1, b["jitterBufferEmittedCount"] - a["jitterBufferEmittedCount"])
        found[f"{kind}_ms"] = 1000 * (b["jitterBufferDelay"] - a["jitterBufferDelay"]) / count
        found[f"{kind}_own_ms"] = 1000 * (b["jitterBufferMinimumDelay"] - a["jitterBufferMinimumDelay"]) / count
    played = [now[kind].get("estimatedPlayoutTimestamp") or 0 for kind in KINDS]
    found["sync_ms"] = played[0] - played[1] if all(played) else 0.0
    return found


def summary(samples: list[dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for what in ("video_ms", "audio_ms", "video_own_ms", "audio_own_ms"):
        values = [each[what] for each in samples]
        found[f"{what}_p50"], found[f"{what}_max"] = round(median(values)), round(max(values))
        found[f"{what}_last"] = round(values[-1])
    found["lip_sync_ms_p50"] = round(median(abs(each["sync_ms"]) for each in samples))
    found["lip_sync_ms_max"] = round(max(abs(each["sync_ms"]) for each in samples))
    found["rss_mb_first"], found["rss_mb_last"] = round(samples[0]["rss_mb"], 1), round(samples[-1]["rss_mb"], 1)
    return found


async def seen_gaps(page: Watching) -> dict[str, float]:
    timeline = (await page.look())["state"]["timeline"]
    gaps = [shown["gap_ms"] for shown in timeline[1:]] or [0]
    return {"move_gap_ms_p50": median(gaps), "move_gap_ms_max": max(gaps)}


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
