"""The device lock: one at a time, and the next boot knows whom it replaces."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dhsched.cells.workers import Registration
from dhsched.errors import DeviceBusy, DhschedError
from dhsched.worker.lock import DeviceLock, default_folder


def test_one_at_a_time_and_the_last_worker_is_remembered(tmp_path: Path) -> None:
    with DeviceLock("gpu0", tmp_path) as lock:
        assert lock.last_boot() is None
        lock.remember(Registration("", "a-long-name#123"))
        lock.remember(Registration("", "w#4"))
        with pytest.raises(DeviceBusy, match="w#4"), DeviceLock("gpu0", tmp_path, wait_s=0.05):
            pass
        with DeviceLock("gpu1", tmp_path):
            pass
    with DeviceLock("gpu0", tmp_path) as lock:
        assert lock.last_boot() == Registration("", "w#4")


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    """The children of a Worker that was killed may hold it for some milliseconds."""
    held = DeviceLock("gpu0", tmp_path)
    held.__enter__()
    releasing = threading.Timer(0.1, held.__exit__, (None, None, None))
    releasing.start()
    with DeviceLock("gpu0", tmp_path, wait_s=60) as lock:
        assert lock.last_boot() is None
    releasing.join()


def test_a_file_that_was_not_ours_replaces_nobody(tmp_path: Path) -> None:
    (tmp_path / "gpu0.lock").write_text("rubbish \x00")
    with DeviceLock("gpu0", tmp_path) as lock:
        assert lock.last_boot() is None


def test_a_link_in_the_locks_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for folder, link in ((tmp_path / "locks", "gpu0.lock"), (tmp_path / "more", "gpu0.lock")):
        folder.mkdir()
        (folder / link).symlink_to(victim)
        with pytest.raises(DhschedError, match=r"gpu0\.lock"), DeviceLock("gpu0", folder) as lock:
            lock.remember(Registration("", "w#4"))
    (tmp_path / "hard").mkdir()
    (tmp_path / "hard" / "gpu0.lock").hardlink_to(victim)
    with pytest.raises(DhschedError, match=r"gpu0\.lock"), DeviceLock("gpu0", tmp_path / "hard") as lock:
        lock.remember(Registration("", "w#4"))
    assert victim.read_text() == "precious"


def test_the_usual_folder_is_the_users_own_and_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with DeviceLock("gpu0") as lock:
        assert lock.path == tmp_path / "state" / "dhsched" / "gpu0.lock"
        assert lock.path.parent.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "dhsched").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DhschedError, match="--locks"), DeviceLock("gpu0"):
        pass
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "open"))
    (tmp_path / "open" / "dhsched").mkdir(parents=True)
    (tmp_path / "open" / "dhsched").chmod(0o777)
    with pytest.raises(DhschedError, match="--locks"), DeviceLock("gpu0"):
        pass


def test_two_boots_find_the_same_lock_whatever_home_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "a"))
    before = default_folder()
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert default_folder() == before and not before.is_relative_to(tmp_path)
