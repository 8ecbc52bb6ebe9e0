"""`dhsched calibrate` on a model of known capacity, with a real Worker process and a deployment of its own."""

from __future__ import annotations

import pytest

from tests.harness.avatar_extra import require_avatar
from tests.harness.processes import start

FAKE = "tests.harness.fake_gpu"
WAIT_S = 240.0
ON_GPU = ("--setup", f"{FAKE}:Gpu", "--no-room", "--seconds", "3", "--max", "8")


async def calibrated(*options: str) -> tuple[int, list[str]]:
    process = await start("calibrate", *options)
    try:
        status = await process.ended(WAIT_S)
    finally:
        await process.stop()
    return status, [line.rstrip("\n") for line in process.printed]


@pytest.mark.release
@pytest.mark.parametrize("_again", range(3))
async def test_a_lock_that_is_held_for_12_of_40_ms_has_room_for_three(_again: int) -> None:
    status, printed = await calibrated(f"{FAKE}:speaks", *ON_GPU)
    assert status == 0 and printed[-1] == "capacity: 3", printed
    rows = {line.split()[0]: line for line in printed if line[:5].strip().isdecimal()}
    assert [*rows] == ["1", "2", "3", "4"], "four is the first that is late, and they are shown in order"
    assert rows["4"].endswith("late") and not rows["3"].endswith("late")


@pytest.mark.release
async def test_a_runtime_that_leaves_frames_out_and_acks_in_time_is_late_by_what_it_reports() -> None:
    status, printed = await calibrated(f"{FAKE}:leaves_out", *ON_GPU)
    assert status == 0 and printed[-1] == "capacity: 3", printed
    assert printed[1].startswith("+ is output that was left out")
    four = next(line for line in printed if line.startswith("    4 "))
    assert "+" in four and four.endswith("late"), four


@pytest.mark.release
async def test_lives_publish_to_a_private_room(capfd: pytest.CaptureFixture[str]) -> None:
    require_avatar()
    status, printed = await calibrated(f"{FAKE}:publishes", "--max", "1", "--seconds", "0.5", "--item-s", "60")
    assert status == 0 and printed[-1] == "capacity: 1", printed
    assert "A room runs on this machine, too" in capfd.readouterr().err
    status, _ = await calibrated(f"{FAKE}:publishes", "--no-room")
    said = capfd.readouterr().err
    assert status == 1 and "There is no room" in said and "the runtime crashed: ValueError: nowhere to publish" in said


@pytest.mark.release
async def test_a_runtime_that_crashes_and_a_setup_that_fails_end_it_with_the_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    status, _ = await calibrated(f"{FAKE}:speaks", "--setup", f"{FAKE}:Gpu", "--text", "crash")
    assert status == 1 and "the runtime crashed: ValueError: no such word" in capfd.readouterr().err
    status, _ = await calibrated(f"{FAKE}:speaks", "--setup", f"{FAKE}:broken")
    said = capfd.readouterr().err
    assert status == 1 and "RuntimeError: no model" in said and "the Worker ended with status 1" in said
