"""The process that kills what `--exec` children started once their Worker is gone, however it ended.

    python -I -S keeper.py

A command may start other processes, and the kernel ties only the command itself to the Worker. The others, left behind,
would hold the GPU's memory and the device lock. So each command leads a process group, and the keeper knows the groups:
the child writes `+PID` to the keeper's standard input before it becomes the command, so that no group runs unknown, and
the Worker writes `-PID` once it has killed the group. When that pipe ends, the Worker is gone, by exit or by kill -9,
and the keeper kills every group that is left.

A process that moves itself into a session of its own, as a daemon does, is not followed. This file is run by its path
and imports nothing of dhsched, so that it starts in a few milliseconds.
"""

import contextlib
import os
import signal

CHUNK_BYTES = 65_536


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # The keeper must outlive the Worker.
    groups: set[int] = set()
    rest = b""
    while data := os.read(0, CHUNK_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
