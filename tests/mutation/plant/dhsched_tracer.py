"""Which lines of some files this interpreter runs. Only the standard library is imported: any process may load it."""

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


class Tracer:
    """Calls `found` with each line of the files whose paths begin with one of `paths`, once."""

    def __init__(self, paths: tuple[str, ...], found: Callable[[str, int], object]) -> None:
        self._paths = paths
        self._found = found
        self._left: dict[CodeType, set[int]] = {}

    def start(self) -> None:
        """Trace this thread, and those that begin from now on."""
        self._left = {}
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self._paths):
            return None
        left = self._left.get(code)
        if left is None:
            left = self._left[code] = {line for _, _, line in code.co_lines() if line}
            left.discard(code.co_firstlineno)
        return self._line if left else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        code, line = frame.f_code, frame.f_lineno
        left = self._left.get(code)
        if event == "line" and left is not None and line in left:
            left.discard(line)
            self._found(code.co_filename, line)
        return self._line if left else None


def trace_process(into: str, paths: list[str]) -> None:
    """Trace this process for as long as it runs. Each line is written into the file `into` as soon as it is run: a
    process may be killed at any moment."""
    file = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    Tracer(tuple(paths), lambda name, line: os.write(file, f"{name}:{line}\n".encode())).start()
