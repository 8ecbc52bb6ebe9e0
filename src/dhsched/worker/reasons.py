"""Why a runtime ended, in the few hundred bytes that travel with its departure (types.clean_reason).

What was raised comes first, then where, the innermost frame first: that is what names the line to look at. The whole
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
FRAMES_MAX = 8
MESSAGE_BYTES_MAX = REASON_BYTES_MAX * 4 // 5  # The rest is for where it was raised.
GROUPS_MAX = 16  # Exceptions inside exceptions that are opened.
WORDS_BYTES_MAX = 300  # Of what a child said last.
HERE = str(Path(__file__).parent) + os.sep


def reason_of(error: BaseException) -> str:
    """`OutOfMemoryError: CUDA out of memory (model.py:41 allocate, my_runtime.py:12 speak)`."""
    for _ in range(GROUPS_MAX):
        if not isinstance(error, BaseExceptionGroup):
            break
        error = error.exceptions[0]  # A group says only how many it holds.
    said = clean_reason(f"{type(error).__name__}: {message_of(error)}")
    if isinstance(error, DhschedError):
        return said  # One of ours says all there is to know; where it was raised is of no use to anybody.
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
    """What it says of itself; a runtime's own exception may fail even at that."""
    try:
        return str(error)
    except Exception:
        return "its message cannot be read"


def ending_of(command: str, status: int | None, words: bytes) -> str:
    """How a child ended: `sh ended with status 3: no such model`; `words` is what it said last."""
    end = clean_reason(words.rstrip()[-WORDS_BYTES_MAX:].decode(errors="ignore"))
    how = f"ended with status {status}"
    if status is not None and status < 0:
        name = signal.Signals(-status).name if -status in [*signal.Signals] else f"signal {-status}"
        how = f"was killed by {name}"
    return f"{os.path.basename(command)} {how}" + (f": {end}" if end else "")
