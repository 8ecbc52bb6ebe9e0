"""Why a runtime ended, in the few hundred bytes that travel with its departure (types.clean_reason).

The exception comes first, then where it was raised, innermost frame first: those name the line to look at. The whole
traceback is in the Worker's log.
"""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path
from types import FrameType

from dhsched.errors import DhschedError
from dhsched.types import REASON_BYTES_MAX, clean_reason

RETURNED = "returned"
CANCELLED = "cancelled by itself"
FRAMES_MAX = 8  # Outer frames beyond this are left out.
MESSAGE_BYTES_MAX = REASON_BYTES_MAX * 4 // 5  # A longer message is cut; the rest is for the frames.
GROUPS_MAX = 16  # Exception groups nested deeper than this are not opened.
WORDS_BYTES_MAX = 300  # Of a child's standard error, only the last bytes are kept.
HERE = str(Path(__file__).parent) + os.sep


def reason_of(error: BaseException) -> str:
    """Return `OutOfMemoryError: CUDA out of memory (model.py:41 allocate, my_runtime.py:12 speak)`."""
    for _ in range(GROUPS_MAX):
        if not isinstance(error, BaseExceptionGroup):
            break
        error = error.exceptions[0]  # The group's own message only counts its exceptions.
    said = clean_reason(f"{type(error).__name__}: {message_of(error)}")
    if isinstance(error, DhschedError):
        return said  # The message of our own errors is complete; the place would not help the reader.
    short = said.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")
    places = [
        place_of(frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(HERE)
    ]
    return clean_reason(f"{short} ({', '.join(places[: -FRAMES_MAX - 1 : -1])})") if places else short


def place_of(frame: FrameType, line: int) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}"


def message_of(error: BaseException) -> str:
    """Return the exception's message; the `__str__` of a runtime's own exception may itself fail."""
    try:
        return str(error)
    except Exception:
        return "its message cannot be read"


def ending_of(command: str, status: int | None, words: bytes) -> str:
    """Return how a child ended, as `sh ended with status 3: no such model`; `words` is the end of its output."""
    end = clean_reason(words.rstrip()[-WORDS_BYTES_MAX:].decode(errors="ignore"))
    how = f"ended with status {status}"
    if status is not None and status < 0:
        name = signal.Signals(-status).name if -status in [*signal.Signals] else f"signal {-status}"
        how = f"was killed by {name}"
    return f"{os.path.basename(command)} {how}" + (f": {end}" if end else "")
