"""The idle movements of a face: it blinks, looks around, sways and nods as it speaks. Pure: time and seed in, pose out.

The same time and seed always give the same pose, so a frame can be drawn twice, skipped, or drawn by another Worker.
"""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

BLINK_EVERY_S = 3.7
BLINK_S = 0.22
GAZE_EVERY_S = 2.3
SACCADE_S = 0.09


class Pose(NamedTuple):
    """The pose of the head, in units of the design; `blink` is 1 with eyes shut, gaze is -1 to 1 either way."""

    blink: float = 0.0
    gaze_x: float = 0.0
    gaze_y: float = 0.0
    x: float = 0.0
    y: float = 0.0
    tilt: float = 0.0  # Degrees.
    brow: float = 0.0  # 0 to 1, raised.


def pose_at(time_s: float, seed: int, energy: float = 0.0) -> Pose:
    """Return the pose at a time. `energy` is the voice's loudness, 0 to 1: head and brows move with it."""
    gaze_x, gaze_y = _gaze(time_s, seed)
    a, b, c = (_chance(seed, "phase", n) * math.tau for n in range(3))
    return Pose(
        blink=blink_at(time_s, seed),
        gaze_x=gaze_x,
        gaze_y=gaze_y,
        x=2.4 * math.sin(time_s * 0.61 + a) + 1.0 * math.sin(time_s * 1.37 + b) + 0.8 * gaze_x,
        y=1.1 * math.sin(time_s * 0.93 + c) + 2.2 * energy,
        tilt=1.3 * math.sin(time_s * 0.47 + b) + 0.5 * math.sin(time_s * 1.13 + a),
        brow=0.16 + 0.14 * math.sin(time_s * 0.41 + c) + 0.5 * energy,
    )


def blink_at(time_s: float, seed: int) -> float:
    """Return how far the lids are down: fast to close, slower to open, once in a while twice in a row."""
    n = math.floor(time_s / BLINK_EVERY_S)
    since = time_s - n * BLINK_EVERY_S - (0.3 + _chance(seed, "blink", n) * (BLINK_EVERY_S - 4 * BLINK_S - 0.3))
    if since > BLINK_S and _chance(seed, "twice", n) < 0.15:
        since -= 1.4 * BLINK_S
    if not 0 <= since < BLINK_S:
        return 0.0
    share = since / BLINK_S
    return _ease(share / 0.35) if share < 0.35 else 1 - _ease((share - 0.35) / 0.65)


def is_quick(time_s: float, seed: int, *, within_s: float) -> bool:
    """Return whether the lids move, now or `within_s` ago, which a low frame rate would miss."""
    return blink_at(time_s, seed) > 0 or blink_at(time_s - within_s, seed) > 0


def _gaze(time_s: float, seed: int) -> tuple[float, float]:
    """Return where the eyes look: they rest, mostly on the viewer, and jump to the next target."""
    n = math.floor(time_s / GAZE_EVERY_S)
    share = _ease(min(1.0, (time_s - n * GAZE_EVERY_S) / SACCADE_S))
    (x0, y0), (x1, y1) = _target(n - 1, seed), _target(n, seed)
    return x0 + (x1 - x0) * share, y0 + (y1 - y0) * share


def _target(n: int, seed: int) -> tuple[float, float]:
    if _chance(seed, "look", n) < 0.6:
        return 0.0, 0.0
    return 1.6 * _chance(seed, "gaze x", n) - 0.8, _chance(seed, "gaze y", n) - 0.6


def _ease(share: float) -> float:
    share = min(1.0, max(0.0, share))
    return share * share * (3 - 2 * share)


def _chance(seed: int, what: str, n: int) -> float:
    """Return a number from 0 to 1, always the same for the same arguments."""
    mixed = (zlib.crc32(f"{seed} {what} {n}".encode()) * 2_654_435_761) & 0xFFFFFFFF
    return mixed / 0x1_0000_0000
