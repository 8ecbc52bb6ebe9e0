"""The devices of one Worker: all of them are locked while it runs, and each session is given one of them.

A device on which the runtimes of too many lives have crashed is *blamed* (blame_limits.py): sessions get it only while
no other device of the Worker is free. A crash is forgotten after WINDOW_S, and the device is used again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from math import inf
from pathlib import Path

import structlog

from dhsched.blame_limits import judge_device
from dhsched.cells.workers import Registration
from dhsched.errors import DeviceBusy
from dhsched.links.messages import Device
from dhsched.types import name_of
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.lock import POLL_S, WAIT_S, DeviceLock
from dhsched.worker.session import Session

log = structlog.get_logger(__name__)

WINDOW_S = 600.0  # A crash counts against its device for this long.
CRASHES_MAX = 4  # A device on which more lives crash within WINDOW_S is blamed.


def choose_device(runtimes: Mapping[str, int], blamed: Collection[str], share: float) -> str:
    """Return the device for the next session: the one with the fewest runtimes, of those that are not blamed and have
    fewer than their share; of all devices if there is no such device."""
    free = [name for name, count in runtimes.items() if name not in blamed and count < share]
    return min(free or runtimes, key=lambda name: runtimes[name])


class Devices:
    """The locked devices of one Worker, how many runtimes each has, how many have crashed there, and how much of their
    output was late.

    `on_change` is called when a crash, or the end of its window, changes what is said of a device.
    """

    def __init__(self, locks: Sequence[tuple[str, DeviceLock]], crashes_max: int = CRASHES_MAX) -> None:
        self._locks = locks
        self._crashes_max = crashes_max
        self._crashed: dict[str, dict[str, float]] = {name: {} for name, _ in locks}  # Lives, and when.
        self.runtimes: Counter[str] = Counter({name: 0 for name, _ in locks})
        self.crashes: Counter[str] = Counter({name: 0 for name, _ in locks})
        self.late_s: dict[str, float] = {name: 0.0 for name, _ in locks}  # Late output, as runtimes report it.
        self.share: float = inf  # Runtimes that a device has before another one is used.
        self.on_change: Callable[[], None] | None = None

    @property
    def lock_fds(self) -> tuple[int, ...]:
        return tuple(lock.fd for _, lock in self._locks)

    def last_boot(self, machine: str) -> Registration | None:
        """Return the boot that the next boot replaces: the last one on any of the devices, if this machine ran it.

        A machine that was given another name replaces nothing: its earlier boot is lost by its silence. So are the
        others if the devices were in several boots.
        """
        found = [last for _, lock in self._locks if (last := lock.last_boot()) is not None]
        return next((last for last in found if name_of(last.worker) == machine), None)

    def remember(self, boot: Registration) -> None:
        for _, lock in self._locks:
            lock.remember(boot)

    def states(self) -> list[Device]:
        """Return the state of each device, as it is reported to Dispatch."""
        blamed = self.blamed
        return [Device(name, len(lives), name in blamed) for name, lives in self._crashed.items()]

    @property
    def blamed(self) -> set[str]:
        """Return the devices on which too many lives have crashed. One device alone is never blamed: the Worker is."""
        if len(self._crashed) == 1:
            return set()
        return {name for name, lives in self._crashed.items() if judge_device(lives, self._crashes_max)}

    @contextmanager
    def used_by(self, session: Session) -> Iterator[None]:
        """Set `session.device`, as `choose_device` says at this moment, and count the session's runtime there while the
        block runs it.

        So no device has more than its `share` of the Worker's capacity, unless every other device has that already.
        """
        device = choose_device(self.runtimes, self.blamed, self.share)
        several = len(self.runtimes) > 1
        self.runtimes[device] += 1
        inbox = SessionInbox(session)
        inbox.given_device(device, tell=several)
        inbox.watch_late(partial(self._note_late, device))
        if several:
            structlog.contextvars.bind_contextvars(device=device)  # The crash is logged with it.
        try:
            yield
        except Exception:
            self.crashes[device] += 1
            if several and not session.stopping.is_set():
                self._note_crash(device, session.live)
            raise
        finally:
            self.runtimes[device] -= 1

    def _note_late(self, device: str, seconds: float) -> None:
        self.late_s[device] += seconds

    def _note_crash(self, device: str, live: str) -> None:
        loop, before = asyncio.get_running_loop(), self.blamed
        self._crashed[device][live] = loop.time()
        loop.call_later(WINDOW_S, self._forget_crash, device, live)
        if device in self.blamed - before:
            crashes = len(self._crashed[device])
            log.warning("too many lives crash on a device: others are used first", device=device, crashes=crashes)
        self._changed()

    def _forget_crash(self, device: str, live: str) -> None:
        at = self._crashed[device].get(live)
        if at is not None and asyncio.get_running_loop().time() - at >= WINDOW_S:
            del self._crashed[device][live]
            self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


@asynccontextmanager
async def locked(names: Sequence[str], folder: Path | None, crashes_max: int = CRASHES_MAX) -> AsyncIterator[Devices]:
    """Lock every device during the block. Raise DeviceBusy if another Worker keeps one of them for WAIT_S."""
    with ExitStack() as stack:
        locks = []
        for name in names:
            lock = await taken(DeviceLock(name, folder, wait_s=0))
            stack.callback(lock.__exit__, None, None, None)
            locks.append((name, lock))
        yield Devices(locks, crashes_max)


async def taken(lock: DeviceLock) -> DeviceLock:
    """Take the lock, and let the loop turn meanwhile: in a program of its own it serves others."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + WAIT_S
    while True:
        try:
            return lock.__enter__()
        except DeviceBusy:
            if loop.time() > give_up:
                raise
        await asyncio.sleep(POLL_S)
