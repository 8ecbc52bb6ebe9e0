"""The process that ends what `--exec` children started when their Worker is gone, however it went.

    python -I -S keeper.py

A command may start others, a shell script does little else, and the kernel ties only the command itself to the Worker.
Left behind, the others would hold the GPU's memory and the device lock. So each command leads a process group, and its
number comes here: `+PID` is written into our standard input by the child before it becomes the command, so that nothing
ever runs that we do not know of, and `-PID` by the Worker once it has killed the group. At the end of that pipe the
Worker is gone, by exit or by kill -9, and every group that is left is killed.

What moves itself into a session of its own, as a daemon does, is not followed. This file is run by its path and imports
nothing of dhsched, so that it starts in a few milliseconds.
"""

import contextlib
import os
import signal

CHUNK_BYTES = 65_536


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # It goes when the Worker has gone, not before.
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
