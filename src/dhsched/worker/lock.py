"""The device lock: one Worker process per device, and the WorkerID that its next boot replaces.

Two boots must never overlap on one GPU. The lock is the kernel's, so it goes with the process, however that ends; the
children of `--exec` runtimes inherit it, so a device stays locked while any of them is left. The file's content is the
last WorkerID on the device: whoever takes the lock knows that this boot is over, and says so when it registers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from dhsched.errors import BadId, DhschedError
from dhsched.types import check_id, check_worker

WAIT_S = 2.0  # For the children of a Worker that was killed: they follow it in milliseconds.
LOOK_S = 0.02


class DeviceBusy(DhschedError):
    """Another Worker runs on this device."""


class DeviceLock:
    """The lock of one device, held from `__enter__` to `__exit__` or to the end of the process."""

    def __init__(self, device: str, folder: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self.path = (folder or default_folder()) / f"{check_id(device, 'device')}.lock"
        self.fd = -1
        self._device = device
        self._wait_s = wait_s

    def __enter__(self) -> Self:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up = time.monotonic() + self._wait_s
        while not self._taken():
            if time.monotonic() > give_up:
                os.close(self.fd)
                raise DeviceBusy(
                    f"device {self._device} is in use by Worker {self._content() or '?'} (lock {self.path}): stop that "
                    "one first, or name another device with --device"
                )
            time.sleep(LOOK_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: its content is for the next boot.
        os.close(self.fd)
        self.fd = -1

    def last_worker(self) -> str:
        """The WorkerID of the last boot on this device; empty when there was none that we can read."""
        try:
            return check_worker(self._content())
        except BadId:
            return ""

    def remember(self, worker: str) -> None:
        """This boot's WorkerID. Written whole and then cut, so that a kill in between leaves one of the two."""
        line = f"{worker}\n".encode()
        os.pwrite(self.fd, line, 0)
        os.ftruncate(self.fd, len(line))
        os.fsync(self.fd)

    def _content(self) -> str:
        text = self.path.read_text(errors="replace")
        # A kill between writing and cutting leaves the rest of a longer id behind the first line.
        return text.splitlines()[0].strip() if text.strip() else ""

    def _taken(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True


def default_folder() -> Path:
    """A place of this user that outlives the process: XDG_STATE_HOME, else the user's temporary files."""
    state = os.environ.get("XDG_STATE_HOME")
    return Path(state) / "dhsched" if state else Path(tempfile.gettempdir()) / f"dhsched-{os.getuid()}"
