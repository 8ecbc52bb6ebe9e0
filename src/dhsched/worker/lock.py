"""The device lock: one Worker process per device, and the WorkerID that its next boot replaces.

Two boots must never overlap on one GPU. The kernel holds the lock, so the lock goes with the process, however that
ends; the children of `--exec` runtimes inherit the lock, so a device stays locked while any of them is left. The file
contains the last WorkerID on the device: the boot that takes the lock knows that the last one is over, and names it
when it registers (`replaces`).

Two boots of one user must find the same file, so its folder depends on the user and on XDG_STATE_HOME, and on no other
variable. A file or a folder that another user could have put there is refused, never followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from dhsched.cells.workers import Registration, read_registration
from dhsched.errors import BadId, DeviceBusy, DhschedError
from dhsched.types import check_id

WAIT_S = 2.0  # A device that is locked for longer is busy. Children of a killed Worker end within milliseconds.
POLL_S = 0.02  # Between two attempts to take the lock.
CONTENT_BYTES_MAX = 4_096  # The rest of a longer lock file is not read; a WorkerID is far shorter.


class DeviceLock:
    """The lock of one device, held from `__enter__` to `__exit__` or to the end of the process."""

    def __init__(self, device: str, folder: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self.path = (folder or default_folder()) / f"{check_id(device, 'device')}.lock"
        self._given = folder is not None
        self.fd = -1
        self._device = device
        self._wait_s = wait_s

    def __enter__(self) -> Self:
        self.fd = self._open()
        give_up = time.monotonic() + self._wait_s
        while not self._taken():
            if time.monotonic() >= give_up:
                holder = self._content()
                os.close(self.fd)
                raise DeviceBusy(
                    f"device {self._device} is in use by Worker {holder or '?'} (lock {self.path}): stop that "
                    "Worker first, or name another device with --device"
                )
            time.sleep(POLL_S)
        return self

    def _open(self) -> int:
        """Open the lock file, or make it. Raise DhschedError if another user could have put it there."""
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._given:
                check_own_folder(folder)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DhschedError(
                f"cannot open the device lock {self.path} ({error.strerror}): it must be a file of this user's and no "
                "link; give another folder with --locks"
            ) from None
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            os.close(fd)
            raise DhschedError(
                f"the device lock {self.path} is not a file of this user's alone (owner {found.st_uid}, "
                f"{found.st_nlink} links): remove it, or give another folder with --locks"
            )
        return fd

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: its content is for the next boot.
        os.close(self.fd)
        self.fd = -1

    def last_boot(self) -> Registration | None:
        """Return the registration of the last boot on this device; None if there is none or it cannot be read."""
        try:
            return read_registration(self._content())
        except BadId:
            return None

    def remember(self, boot: Registration) -> None:
        """Write this boot's registration over the old one, then cut the file: a kill in between leaves one of the
        two."""
        line = f"{boot}\n".encode()
        os.pwrite(self.fd, line, 0)
        os.ftruncate(self.fd, len(line))
        os.fsync(self.fd)

    def _content(self) -> str:
        text = os.pread(self.fd, CONTENT_BYTES_MAX, 0).decode(errors="replace")
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
    """Return a folder of this user that outlives the process: in XDG_STATE_HOME, else in `.local/state` of the user's
    home, else, for a user without a writable home, in /tmp."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "dhsched"
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)  # Not $HOME: sudo and services change that variable.
    except KeyError:
        home = Path("/nonexistent")
    if os.access(home, os.W_OK):
        return home / ".local" / "state" / "dhsched"
    return Path("/tmp") / f"dhsched-{os.geteuid()}"  # Not $TMPDIR, for the same reason.


def check_own_folder(folder: Path) -> None:
    """Raise DhschedError unless the folder belongs to this user and no other user may put files there."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise DhschedError(
            f"the folder of the device locks, {folder}, is a link or open to other users (mode "
            f"{stat.S_IMODE(found.st_mode):o}, owner {found.st_uid}): chmod 700 it, or give another with --locks"
        )
