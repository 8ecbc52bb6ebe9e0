"""The trace of a run: what the store was asked and answered, what runtimes were given, what applications were told, and
every fault, each with its time. Its hash is the run's."""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from tests.virtual.loop import VirtualLoop

LATEST = 40


class Trace:
    """See the module. With a file, all of it is written there too."""

    def __init__(self, loop: VirtualLoop, file: Path | None = None) -> None:
        self._loop = loop
        self._hash = sha256()
        self._file: BinaryIO | None = file.open("wb") if file else None
        self.latest: deque[bytes] = deque(maxlen=LATEST)

    def note(self, what: str) -> None:
        self.add(what.encode())

    def add(self, what: bytes) -> None:
        line = b"%.6f %b\n" % (self._loop.now, what)
        self._hash.update(line)
        self.latest.append(line)
        if self._file is not None:
            self._file.write(line)

    def close(self) -> str:
        """Return the hash of all of it."""
        if self._file is not None:
            self._file.close()
        return self._hash.hexdigest()
