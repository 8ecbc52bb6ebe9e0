"""Draws a face, frame by frame: a portrait whose head is moved, with eyes, brows and mouth drawn on it.

Deterministic: the same pose and mouth give the same pixels. Nothing here knows the time.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from dhsched.avatar.canvas import DESIGN, Pixels
from dhsched.avatar.features import Affine, draw_eyes, draw_mouth
from dhsched.avatar.portrait import portrait
from dhsched.avatar.pose import Pose
from dhsched.avatar.visemes import REST, Mouth

SIZE_MIN, SIZE_MAX = 64, 1_024
PIVOT_X, PIVOT_Y = 160.0, 240.0  # A head turns about the top of its neck.
NOSE_Y, CHIN_Y = 186.0, 233.0
JAW = 7.0  # How far the chin goes down.
MARGIN = 14.0  # Design units that the head may move in any direction; beyond them it is cut off.


class Face:
    """One face at one size. Drawing reuses one buffer: the result of `draw` is valid until the next call."""

    def __init__(self, face: str, background: str, size: int) -> None:
        self.name, self.background, self.size = face, background, size
        self._scale = size / DESIGN
        self._still = portrait(face, background, size)
        self._frame = self._still.backdrop.copy()
        head = self._still.head
        pixels = head.pixels
        cut = round(NOSE_Y * self._scale) - head.top
        overlap = max(1, round(4 * self._scale))
        self._head, self._head_at = pixels[: cut + overlap], (head.left, head.top)
        self._jaw, self._jaw_at = pixels[cut - overlap :], (head.left, head.top + cut - overlap)
        margin = math.ceil(MARGIN * self._scale)
        height, width = head.coverage.shape
        self._left, self._top = max(0, head.left - margin), max(0, head.top - margin)
        self._right = min(size, head.left + width + margin)
        self._bottom = min(size, head.top + height + margin)
        self._below = head.top + cut - 2 * margin

    def draw(self, pose: Pose, mouth: Mouth = REST) -> Pixels:
        """Return the frame, size by size, blue-green-red."""
        affine = self._affine(pose)
        self._draw_head(affine, JAW * mouth.open)
        look, frame = self._still.look, self._frame
        draw_eyes(frame, affine, look, pose)
        draw_mouth(frame, affine, look, mouth)
        return frame

    def draw_i420(self, pose: Pose, mouth: Mouth = REST) -> Pixels:
        """Return the frame as planes of brightness and colour, as encoders take it."""
        return np.asarray(cv2.cvtColor(self.draw(pose, mouth), cv2.COLOR_BGR2YUV_I420), np.uint8)

    def _affine(self, pose: Pose) -> Affine:
        """Return the map from the design, with the head upright, to pixels of the frame."""
        c, s = math.cos(math.radians(pose.tilt)), math.sin(math.radians(pose.tilt))
        x = PIVOT_X + pose.x - c * PIVOT_X + s * PIVOT_Y
        y = PIVOT_Y + pose.y - s * PIVOT_X - c * PIVOT_Y
        return np.array([[c, -s, x], [s, c, y]], np.float32) * np.float32(self._scale)

    def _draw_head(self, affine: Affine, jaw: float) -> None:
        """Draw the head's part of the frame, from the backdrop and the head at its pose.

        An open mouth takes the jaw down: the head below the nose is stretched and drawn first, the rest over it.
        """
        part = np.s_[self._top : self._bottom, self._left : self._right]
        below = np.s_[self._below : self._bottom, self._left : self._right]
        self._frame[part] = self._still.backdrop[part]
        stretch = 1 + jaw / (CHIN_Y - NOSE_Y)
        lower = affine.copy()
        lower[:, 2] += lower[:, 1] * (NOSE_Y - stretch * NOSE_Y)
        lower[:, 1] *= stretch
        self._put(self._jaw, lower, self._jaw_at, below)
        self._put(self._head, affine, self._head_at, part)

    def _put(self, sprite: Pixels, affine: Affine, at: tuple[int, int], part: tuple[slice, slice]) -> None:
        """Blend a sprite, whose upright position is `at`, into a part of the frame."""
        # From pixels of the sprite to pixels of the part.
        linear = affine[:, :2] / self._scale
        shift = linear @ np.array(at, np.float32) + affine[:, 2] - (part[1].start, part[0].start)
        matrix = np.column_stack([linear, shift]).astype(np.float32)
        size = (part[1].stop - part[1].start, part[0].stop - part[0].start)
        moved = cv2.warpAffine(sprite, matrix, size, flags=cv2.INTER_LINEAR)
        clear = cv2.bitwise_not(cv2.extractChannel(moved, 3))
        behind = cv2.multiply(self._frame[part], cv2.merge((clear, clear, clear)), scale=1 / 255)
        self._frame[part] = cv2.add(behind, cv2.cvtColor(moved, cv2.COLOR_BGRA2BGR))
