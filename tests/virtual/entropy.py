"""Time and chance of a virtual run. `install` is called before anything of the product is imported.

Functions of `time` are bound as defaults when the product's modules are imported, so they are replaced before that.
Until a run begins they return the real time. Everything random comes from one generator: `os.urandom`, which secrets
and uuid use, and every `Random()` without a seed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

EPOCH_S = 1_700_000_000.0  # The date at which every run begins.
_source: random.Random | None = None
_now: Callable[[], float] | None = None
_seed = random.Random.seed
_real = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns")}
_urandom = os.urandom


def install() -> None:
    """Replace time and chance in this process: they are real until `begin`."""
    time.time = _reads("time", lambda now: EPOCH_S + now)
    time.monotonic = _reads("monotonic", lambda now: now)
    time.perf_counter = _reads("perf_counter", lambda now: now)
    time.time_ns = _reads("time_ns", lambda now: int((EPOCH_S + now) * 1e9))
    time.monotonic_ns = _reads("monotonic_ns", lambda now: int(now * 1e9))
    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]
    random.Random.seed = _seeded  # type: ignore[method-assign]


def begin(seed: int, now: Callable[[], float]) -> None:
    """From here on time is `now` and chance is of `seed`."""
    global _source, _now
    _source, _now = random.Random(f"entropy {seed}"), now
    random.seed(f"module {seed}")


def end() -> None:
    """Time and chance are real again."""
    global _source, _now
    _source, _now = None, None


def urandom(size: int) -> bytes:
    return _urandom(size) if _source is None else _source.randbytes(size)


def _seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
    if a is None and _source is not None:
        a = _source.getrandbits(64)
    _seed(self, a, version)


def _reads(name: str, of: Callable[[float], Any]) -> Callable[[], Any]:
    real = _real[name]
    return lambda: real() if _now is None else of(_now())
