"""The parts of a face that change in every frame: eyes, brows and mouth.

A feature is a list of polygons in the design's units, some of them clipped by an outline. Making a feature takes longer
than drawing it, and the same blink, gaze and mouth repeat, so features are made for rounded values and kept. A feature
is drawn in a patch of the frame at twice the size, at its place in the head's pose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dhsched.avatar.canvas import SUBPIXEL_BITS, Colour, Pixels, Points, mix, points, ribbon, smooth
from dhsched.avatar.looks import Look
from dhsched.avatar.pose import Pose
from dhsched.avatar.visemes import Mouth

FINER = 2
KEPT_MAX = 2_048  # Features of each kind, of a few kilobytes; past this the least recently used is made again.
STEPS = 20  # Between 0 and 1; finer than the eye sees at this size.
EYE_X, EYE_Y = 27.5, 146.0  # Where the eyes are, from the middle.
MOUTH_Y = 202.0
MIDDLE = 160.0
WHITE, BLACK = (255, 255, 255), (0, 0, 0)

Affine = NDArray[np.float32]
"""From the design to pixels: two rows of three."""


@dataclass(slots=True)
class Feature:
    """Polygons to draw: under the clipped part, in it, and over it. All points are in one array."""

    corners: Points
    clip: slice | None = None
    under: list[tuple[slice, Colour]] = field(default_factory=list)
    inside: list[tuple[slice, Colour]] = field(default_factory=list)
    over: list[tuple[slice, Colour]] = field(default_factory=list)
    points: Points = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    _made: list[Points] = field(default_factory=list)
    _length: int = 0

    def add(self, where: list[tuple[slice, Colour]], outline: Points, colour: Colour) -> None:
        where.append((self._take(outline), colour))

    def clip_by(self, outline: Points) -> None:
        self.clip = self._take(outline)

    def _take(self, outline: Points) -> slice:
        start, self._length = self._length, self._length + len(outline)
        self._made.append(outline)
        return slice(start, self._length)

    def finished(self) -> Feature:
        self.points = np.concatenate(self._made).astype(np.float32)
        self._made.clear()
        return self

    def draw(self, frame: Pixels, affine: Affine) -> None:
        box = self.corners @ affine[:, :2].T + affine[:, 2]
        x0, y0 = (max(0, int(low)) for low in box.min(0))
        x1, y1 = (min(side, int(high) + 1) for side, high in zip(frame.shape[1::-1], box.max(0), strict=True))
        width, height = x1 - x0, y1 - y0
        if width <= 0 or height <= 0:
            return
        patch = frame[y0:y1, x0:x1]
        image = cv2.resize(patch, (width * FINER, height * FINER), interpolation=cv2.INTER_LINEAR)
        # Pixel i of the patch covers [i, i + 1), its centre is drawn at i: half a pixel of difference at each size.
        finer = float(FINER << SUBPIXEL_BITS)
        offset = affine[:, 2] - (x0, y0) + (0.5 - 0.5 / FINER)
        moved = np.rint(self.points @ (affine[:, :2].T * finer) + offset * finer).astype(np.int32)
        _fill_all(image, moved, self.under)
        if self.clip is not None:
            mask = np.zeros(image.shape[:2], np.uint8)
            cv2.fillPoly(mask, [moved[self.clip]], (255,), cv2.LINE_AA, SUBPIXEL_BITS)
            content = image.copy()
            _fill_all(content, moved, self.inside)
            share = cv2.merge((mask, mask, mask))
            content = cv2.multiply(content, share, scale=1 / 255)
            image = cv2.add(content, cv2.multiply(image, cv2.bitwise_not(share), scale=1 / 255))
        _fill_all(image, moved, self.over)
        cv2.resize(image, (width, height), dst=patch, interpolation=cv2.INTER_AREA)


def _fill_all(image: Any, moved: NDArray[np.int32], parts: list[tuple[slice, Colour]]) -> None:
    for corners, colour in parts:
        cv2.fillPoly(image, [moved[corners]], colour, cv2.LINE_AA, SUBPIXEL_BITS)


def _rounded(value: float) -> int:
    return round(value * STEPS)


# -- eyes and brows


def draw_eyes(frame: Pixels, affine: Affine, look: Look, pose: Pose) -> None:
    rounded = [_rounded(value) for value in (pose.blink, pose.gaze_x, pose.gaze_y, pose.brow)]
    for side in (-1, 1):
        _eye(look, side, *rounded).draw(frame, affine)


@lru_cache(maxsize=KEPT_MAX)
def _eye(look: Look, side: int, blink_n: int, gaze_x_n: int, gaze_y_n: int, brow_n: int) -> Feature:
    """Return one eye; `side` is -1 for the eye on the left of the picture, 1 for the other."""
    blink, brow = blink_n / STEPS, brow_n / STEPS
    x, y = MIDDLE + side * EYE_X, EYE_Y
    outside = side * (38.0 if look.glasses else 23.0)
    eye = Feature(
        points((x - side * 26.5, y - 36), (x + outside, y - 36), (x + outside, y + 20), (x - side * 26.5, y + 20))
    )
    inner, outer = x - side * 15, x + side * 16
    low = points((inner, y + 2.6), (x - side * 6, y + 7.4), (x + side * 5.5, y + 7.8), (outer, y - 0.4))
    high = points((inner, y + 2.6), (x - side * 7.5, y - 7.0), (x + side * 4.5, y - 9.2), (outer, y - 0.4))
    shut = points((inner, y + 2.6), (x - side * 6, y + 6.0), (x + side * 5.5, y + 6.2), (outer, y - 0.4))
    upper = smooth((high + (shut - high) * blink).astype(np.float32), closed=False)
    lower = smooth(low, closed=False)
    if blink < 0.92:
        eye.clip_by(np.concatenate([upper, lower[::-1]]))
        _eyeball(eye, look, x + 4.2 * gaze_x_n / STEPS, y - 0.8 + 2.6 * gaze_y_n / STEPS, upper)
    dark = mix(look.hair, BLACK, 0.55)
    eye.add(eye.over, ribbon(upper, 2.0 + 1.3 * look.lashes, taper=0.6), dark)
    if look.lashes > 0.5:
        wing = points((outer - side * 2.4, y - 2.6), (outer + side * 2.8, y - 3.4), (outer - side * 0.2, y + 0.4))
        eye.add(eye.over, wing, dark)
    eye.add(eye.over, ribbon(lower[4:-2], 0.9, taper=0.8), mix(look.shadow, dark, 0.3))
    crease = upper + np.array((0, -4.6 + 2.6 * blink), np.float32)
    eye.add(eye.over, ribbon(crease[3:-3], 1.2, taper=0.8), mix(look.shadow, look.skin, 0.2))
    eye.add(eye.over, _brow(look, side, x, 124.5 - 5.0 * brow), mix(look.hair, BLACK, 0.15))
    if look.glasses:
        _glasses(eye, side, x)
    return eye.finished()


def _eyeball(eye: Feature, look: Look, x: float, y: float, upper: Points) -> None:
    lid_shadow = np.concatenate([upper, (upper + np.array((0, 2.8), np.float32))[::-1]])
    for outline, colour in (
        (_CIRCLE * 26 + upper.mean(0), mix(WHITE, look.shadow, 0.06)),
        (_CIRCLE * 9.3 + (x, y), mix(look.eyes, BLACK, 0.5)),
        (_CIRCLE * 8.3 + (x, y), look.eyes),
        (_CIRCLE * (5.8, 3.7) + (x, y + 3.8), mix(look.eyes, WHITE, 0.3)),
        (_CIRCLE * 4.2 + (x, y), (22, 16, 14)),
        (lid_shadow, mix(look.eyes, (70, 62, 66), 0.7)),
        (_CIRCLE * 2.6 + (x - 3.1, y - 3.2), WHITE),
        (_CIRCLE * 1.3 + (x + 3.3, y + 3.2), mix(WHITE, look.eyes, 0.25)),
    ):
        eye.add(eye.inside, outline, colour)


_TURN = np.linspace(0, 2 * np.pi, 24, endpoint=False)
_CIRCLE = np.stack([np.cos(_TURN), np.sin(_TURN)], 1).astype(np.float32)


def _brow(look: Look, side: int, x: float, y: float) -> Points:
    """Return the outline of a brow: strong near the nose, fine at its outer end."""
    top = points((x - side * 15, y + 0.6), (x - side * 3, y - 3.6), (x + side * 9, y - 3.9), (x + side * 19, y + 3.4))
    thick = np.array(((0, 4.0), (0, 4.2), (0, 3.0), (0, 0.5)), np.float32) * look.brows
    bottom = (top + thick).astype(np.float32)
    return np.concatenate([smooth(top, closed=False), smooth(bottom, closed=False)[::-1]])


def _glasses(eye: Feature, side: int, x: float) -> None:
    dark = (62, 48, 44)
    rim = np.concatenate([_LENS, _LENS[:2]]) * (side, 1) + np.array((x, EYE_Y + 2), np.float32)
    eye.add(eye.over, ribbon(rim.astype(np.float32), 1.9), dark)
    eye.add(eye.over, ribbon(points((x + side * 21.5, EYE_Y - 3), (MIDDLE + side * 64, EYE_Y - 1)), 2.2), dark)
    # Each side draws its half of the bridge.
    bridge = smooth(
        points((MIDDLE, EYE_Y - 3), (MIDDLE + side * 3, EYE_Y - 2.6), (MIDDLE + side * 6.5, EYE_Y)), closed=False
    )
    eye.add(eye.over, ribbon(bridge, 2.0), dark)


_LENS = smooth(points((-20, -10), (0, -13.5), (19, -11), (22, -3), (18, 11), (0, 15.5), (-17, 12), (-21, 0)), steps=6)


# -- the mouth


def draw_mouth(frame: Pixels, affine: Affine, look: Look, mouth: Mouth) -> None:
    _mouth(look, *(_rounded(value) for value in mouth)).draw(frame, affine)


@lru_cache(maxsize=KEPT_MAX)
def _mouth(look: Look, open_n: int, wide_n: int, teeth_n: int, tongue_n: int) -> Feature:
    """Return the mouth: lips around an opening with teeth and tongue. Shut lips meet in a line that smiles a little."""
    shape = Mouth(open_n / STEPS, wide_n / STEPS, teeth_n / STEPS, tongue_n / STEPS)
    half = 14.0 + 13.5 * shape.wide
    rounded = max(0.0, 0.5 - shape.wide) * 2
    full = 1 + 0.3 * rounded
    rise, drop = 3.0 * shape.open, 15.5 * shape.open
    corner = MOUTH_Y - 3.6 * (1 - shape.open) * (0.4 + shape.wide) + 3.0 * shape.open
    inner = half * (0.87 - 0.17 * rounded)
    # Round lips have no corners: their edges leave the ends steeply.
    out, bulge = 0.18 * rounded, 1 + 0.2 * rounded
    top, low = 4.6 * full + 0.75 * rise, 4.6 * full + 0.7 * drop
    outer_up = _edge(half, corner, (0.56 + out, -top * bulge), (0.17, -7.6 * full - rise), (0, -6.4 * full - rise))
    outer_low = _edge(
        half, corner, (0.7 + out / 2, low * bulge), (0.34, 8.9 * full + 0.96 * drop), (0, 9.8 * full + drop)
    )
    top, low = 0.7 + 0.8 * rise, 0.1 + 0.66 * drop
    inner_up = _edge(inner, corner + 0.2, (0.55 + out, -top * bulge), (0.18, -0.5 - rise), (0, 0.1 - rise))
    inner_low = _edge(inner, corner + 0.2, (0.72 + out / 2, low * bulge), (0.36, 0.6 + 0.94 * drop), (0, 0.7 + drop))
    mouth = Feature(
        points(
            (MIDDLE - 34, MOUTH_Y - 16),
            (MIDDLE + 34, MOUTH_Y - 16),
            (MIDDLE + 34, MOUTH_Y + 32),
            (MIDDLE - 34, MOUTH_Y + 32),
        )
    )
    mouth.add(mouth.under, np.concatenate([outer_up, inner_low[::-1]]), mix(look.lips, BLACK, 0.14))
    mouth.add(mouth.under, np.concatenate([inner_up, outer_low[::-1]]), look.lips)
    if open_n > 0:
        mouth.clip_by(np.concatenate([inner_up, inner_low[::-1]]))
        _inside(mouth, shape, half, inner_up, drop)
    else:
        mouth.add(mouth.over, ribbon(_between(inner_up, inner_low, 0.5), 1.7, taper=0.8), mix(look.lips, BLACK, 0.55))
    gloss = _between(inner_low, outer_low, 0.55)[16:-16]
    mouth.add(mouth.over, ribbon(gloss, 2.0 * full, taper=0.95), mix(look.lips, WHITE, 0.26))
    return mouth.finished()


def _edge(half: float, corner: float, *right: tuple[float, float]) -> Points:
    """Return a lip's edge from corner to corner. `right` runs from outside to the middle, as (share of half, dy)."""
    left = [(MIDDLE - share * half, MOUTH_Y + dy) for share, dy in right]
    mirror = [(MIDDLE + share * half, MOUTH_Y + dy) for share, dy in right[-2::-1]]
    return smooth(points((MIDDLE - half, corner), *left, *mirror, (MIDDLE + half, corner)), closed=False)


def _between(first: Points, second: Points, share: float) -> Points:
    return first + (second - first) * np.float32(share)


def _inside(mouth: Feature, shape: Mouth, half: float, inner_up: Points, drop: float) -> None:
    mouth.add(mouth.inside, _CIRCLE * 50 + (MIDDLE, MOUTH_Y), CAVITY)
    height = drop + 3
    at = MOUTH_Y + drop + height * (0.16 - 0.22 * shape.tongue)
    mouth.add(mouth.inside, _CIRCLE * (half * 0.64, height * 0.44) + (MIDDLE, at), _TONGUE)
    mouth.add(
        mouth.inside, _CIRCLE * (half * 0.3, height * 0.2) + (MIDDLE, at - height * 0.1), mix(_TONGUE, WHITE, 0.1)
    )
    if shape.teeth > 0.05:
        flat = inner_up * (0.93, 0.5) + np.array((MIDDLE * 0.07, inner_up[:, 1].min() * 0.5), np.float32)
        bottom = flat + points((0, 1.4 + 4.4 * shape.teeth))
        teeth = np.concatenate([inner_up - points((0, 3)), bottom[::-1]])
        mouth.add(mouth.inside, teeth.astype(np.float32), _TEETH)
    shadow = np.concatenate([inner_up - points((0, 2)), (inner_up + points((0, 0.9)))[::-1]])
    mouth.add(mouth.inside, shadow, mix(_TEETH, CAVITY, 0.5))


CAVITY = (34, 22, 72)
_TONGUE = (112, 104, 208)
_TEETH = (236, 244, 248)
