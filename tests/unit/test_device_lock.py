"""The device lock: one at a time, and the next boot knows whom it replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhsched.worker.lock import DeviceBusy, DeviceLock


def test_one_at_a_time_and_the_last_worker_is_remembered(tmp_path: Path) -> None:
    with DeviceLock("gpu0", tmp_path) as lock:
        assert lock.last_worker() == ""
        lock.remember("a-long-name#123")
        lock.remember("w#4")
        with pytest.raises(DeviceBusy, match="w#4"), DeviceLock("gpu0", tmp_path, wait_s=0.05):
            pass
        with DeviceLock("gpu1", tmp_path):
            pass
    with DeviceLock("gpu0", tmp_path) as lock:
        assert lock.last_worker() == "w#4"


def test_a_file_that_was_not_ours_replaces_nobody(tmp_path: Path) -> None:
    (tmp_path / "gpu0.lock").write_text("rubbish \x00")
    with DeviceLock("gpu0", tmp_path) as lock:
        assert lock.last_worker() == ""
