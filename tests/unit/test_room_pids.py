"""The pid that a page shows: of the process that is on air, and only where the room is of this machine alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dhsched.errors import BadSetting
from dhsched.room.pids import FILE_BYTES_MAX, WorkerProcess, find_pid, write_pids
from dhsched.room.settings import RoomSettings


def test_a_pid_is_of_the_process_that_went_on_air(tmp_path: Path) -> None:
    path = tmp_path / "pids.json"
    write_pids(path, {"w-1": WorkerProcess(os.getpid(), 1_000)})
    assert find_pid(str(path), "w-1#4", began_ms=1_000) == os.getpid()
    assert find_pid(str(path), "w-1#4", began_ms=999) is None, "it was started after that generation"
    assert find_pid(str(path), "w-2#1", began_ms=1_000) is None


def test_a_process_that_has_ended_has_no_pid(tmp_path: Path) -> None:
    path = tmp_path / "pids.json"
    ended = subprocess.Popen(["true"])
    ended.wait()
    write_pids(path, {"w-1": WorkerProcess(ended.pid, 1_000)})
    assert find_pid(str(path), "w-1#4", began_ms=2_000) is None


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"w-1": 7}', b" " * FILE_BYTES_MAX + b"{}"])
def test_a_file_that_cannot_be_read_names_nobody(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pids.json"
    if content is not None:
        path.write_bytes(content)
    assert find_pid(str(path), "w-1#4", began_ms=2_000) is None


def test_a_room_beyond_loopback_shows_no_pids() -> None:
    assert RoomSettings(pids="/run/pids.json").pids == "/run/pids.json"
    for host in ("0.0.0.0", "room.example"):
        with pytest.raises(BadSetting, match="leave pids out"):
            RoomSettings(host=host, access="keys", insecure=True, pids="/run/pids.json")
