"""The devices of a Worker: which one a session gets, and when a device is blamed for crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhsched.blame_limits import Blamed, judge_device
from dhsched.links.messages import Device
from dhsched.types import Generation
from dhsched.worker import devices as devices_module
from dhsched.worker.devices import Devices, choose_device, locked
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.session import Session
from tests.harness.nowhere import Nowhere
from tests.harness.patching import fire, timers_by_hand


def test_the_device_with_the_fewest_runtimes_is_chosen() -> None:
    assert choose_device({"a": 2, "b": 1, "c": 1}, (), 4) == "b"


def test_a_blamed_device_is_chosen_only_if_no_other_is_free() -> None:
    assert choose_device({"a": 0, "b": 3}, {"a"}, 4) == "b"
    assert choose_device({"a": 0, "b": 4}, {"a"}, 4) == "a"
    assert choose_device({"a": 1, "b": 0}, {"a", "b"}, 4) == "b", "if all are blamed, none is worse than another"


def test_a_device_is_judged_by_the_rule_for_workers() -> None:
    assert judge_device(["t/a", "t/b"], 2) is None
    assert judge_device(["t/a", "t/b", "t/c"], 2) == Blamed("crash", 3, 2)


def crash(devices: Devices, live: str, *, stopping: bool = False) -> str:
    """Run a session that fails, and return its device."""
    session = Session(live, Generation("w#1", 1), Nowhere())
    if stopping:
        SessionInbox(session).close()
    with pytest.raises(RuntimeError, match="as told"), devices.used_by(session):
        raise RuntimeError("as told")
    return session.device


async def test_a_device_on_which_several_lives_crash_is_avoided_until_they_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices_module, "WINDOW_S", 0.0)
    timers = timers_by_hand(monkeypatch)
    async with locked(("gpu0", "gpu1"), tmp_path, 1) as devices:
        changes: list[list[Device]] = []
        devices.on_change = lambda: changes.append(devices.states())
        for _ in range(3):
            assert crash(devices, "t/a") == "gpu0"
        assert devices.blamed == set(), "one live that crashes says more of the live"
        crash(devices, "t/b", stopping=True)
        assert devices.blamed == set(), "it was told to stop"
        assert crash(devices, "t/b") == "gpu0"
        assert devices.blamed == {"gpu0"} and changes[-1] == [Device("gpu0", 2, True), Device("gpu1", 0, False)]
        assert devices.crashes["gpu0"] == 5, "the metric counts each"
        assert crash(devices, "t/c") == "gpu1"
        fire(timers)  # The window is over.
        assert devices.blamed == set() and changes[-1] == [Device("gpu0", 0, False), Device("gpu1", 0, False)]


async def test_the_only_device_of_a_worker_is_never_blamed(tmp_path: Path) -> None:
    async with locked(("gpu0",), tmp_path, 1) as devices:
        for live in ("t/a", "t/b", "t/c"):
            crash(devices, live)
        assert devices.blamed == set() and devices.states() == [Device("gpu0", 0, False)]


async def test_late_output_counts_for_the_device_of_its_session(tmp_path: Path) -> None:
    async with locked(("gpu0", "gpu1"), tmp_path) as devices:
        sessions = [Session(f"t/{name}", Generation("w#1", 1), Nowhere()) for name in "ab"]
        with devices.used_by(sessions[0]), devices.used_by(sessions[1]):
            sessions[1].late(0.5)
        assert devices.late_s == {"gpu0": 0.0, "gpu1": 0.5}


async def test_only_a_claim_on_one_of_several_devices_names_it(tmp_path: Path) -> None:
    for names, told in ((("gpu0",), ""), (("gpu1", "gpu2"), "gpu1")):
        async with locked(names, tmp_path) as devices:
            session = Session("t/a", Generation("w#1", 1), Nowhere())
            with devices.used_by(session):
                assert session.device == names[0] and SessionInbox(session).told_device == told
