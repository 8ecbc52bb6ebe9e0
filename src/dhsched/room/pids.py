"""The pids of the Workers of this machine, so that a page can say which process to kill.

Whoever starts a deployment on one machine (`dhsched up`) writes them into a file and names the file to the room, which
must listen on loopback (settings.py): what runs on a machine is nobody's business elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE_BYTES_MAX = 64 * 1024  # A larger file is not read, and no pid is shown.


class WorkerProcess(msgspec.Struct, frozen=True):
    """The process of one Worker, and since when it has run (wall-clock)."""

    pid: int
    since_ms: int


_decoder = msgspec.json.Decoder(dict[str, WorkerProcess])


def write_pids(path: Path, processes: Mapping[str, WorkerProcess]) -> None:
    """Write the processes by the names of their Workers. A reader sees the old file or the new one, whole."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(processes))
    new.replace(path)


def find_pid(path: str, worker: str, *, began_ms: int) -> int | None:
    """Return the pid of the Worker that went on air at `began_ms`, or None.

    A process that has ended has none, and neither has one that was started after the generation: that is another
    process of the same name.
    """
    try:
        with open(path, "rb") as file:
            found = _decoder.decode(file.read(FILE_BYTES_MAX)).get(worker.partition("#")[0])
        if found is None or found.since_ms > began_ms:
            return None
        os.kill(found.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return found.pid
