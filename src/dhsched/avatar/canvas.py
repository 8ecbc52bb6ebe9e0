"""Drawing with anti-aliased polygons, and nothing else: no GL, no X11, no fonts.

Shapes are points in a square of DESIGN units a side, whatever the size of the picture. A `Layer` is painted once, at
twice the size and slowly, with soft edges and gradients; the result is a `Sprite` that costs little to use. Moving
parts are drawn straight onto the frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

DESIGN = 320.0
FINER = 2  # A layer is painted at this many times its size, which softens its edges.
COARSER = 4  # A wide blur is made at this fraction of the size.
SUBPIXEL_BITS = 4

Pixels = NDArray[np.uint8]
Points = NDArray[np.float32]
Mask = NDArray[np.float32]
Colour = tuple[int, int, int]
"""Blue, green, red: the order that OpenCV uses."""


def rgb(text: str) -> Colour:
    """Return a colour from its web notation: `rgb("f2c9a8")`."""
    red, green, blue = (int(text[i : i + 2], 16) for i in (0, 2, 4))
    return blue, green, red


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return the first colour with `share` of the second mixed in."""
    blue, green, red = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return blue, green, red


def points(*pairs: tuple[float, float]) -> Points:
    return np.array(pairs, np.float32)


def mirrored(half: Points, axis: float = DESIGN / 2) -> Points:
    """Return a closed outline from its right half, which runs from top to bottom as distances from the axis."""
    at = points((axis, 0))
    return np.concatenate([at + half, at + half[-2:0:-1] * points((-1, 1))])


def smooth(outline: Points, *, closed: bool = True, steps: int = 8) -> Points:
    """Return a curve through the points (Catmull-Rom), as a polygon with `steps` corners for each point."""
    if closed:
        before, here = np.roll(outline, 1, 0), outline
        after, beyond = np.roll(outline, -1, 0), np.roll(outline, -2, 0)
    else:
        ends = np.concatenate([outline[:1], outline, outline[-1:]])
        before, here, after, beyond = ends[:-3], ends[1:-2], ends[2:-1], ends[3:]
    # Each corner is a weighted sum of four points: one product for all corners.
    around = np.stack([before, here, after, beyond])
    curve = np.einsum("ws,wpd->psd", _weights(steps), around).reshape(-1, 2)
    return curve if closed else np.concatenate([curve, outline[-1:]])


@cache
def _weights(steps: int) -> NDArray[np.float32]:
    t = np.arange(steps) / steps
    rows = (-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, -(t**2) + t**3)
    return (np.array(rows) / 2).astype(np.float32)


def ellipse(x: float, y: float, rx: float, ry: float, *, tilt: float = 0.0, corners: int = 40) -> Points:
    turn = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    flat = np.stack([rx * np.cos(turn), ry * np.sin(turn)], 1)
    c, s = np.cos(np.radians(tilt)), np.sin(np.radians(tilt))
    turned: Points = (flat @ np.array([[c, s], [-s, c]]) + (x, y)).astype(np.float32)
    return turned


def ribbon(line: Points, width: float, *, taper: float = 0.0) -> Points:
    """Return the outline of a line that is `width` wide in its middle; `taper` 1 points both ends, 0 leaves them."""
    along = np.concatenate([line[1:2] - line[:1], line[2:] - line[:-2], line[-1:] - line[-2:-1]])
    length = np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-6)
    aside = np.stack([-along[:, 1], along[:, 0]], 1) / length[:, None]
    swell = 1 - taper * (1 - np.sin(np.linspace(0, np.pi, len(line))))
    half = (width / 2 * swell)[:, None]
    outline: Points = np.concatenate([line + aside * half, (line - aside * half)[::-1]]).astype(np.float32)
    return outline


@dataclass(frozen=True, slots=True)
class Sprite:
    """A finished layer, cut to what it covers: colours already multiplied with the coverage, at (left, top)."""

    colours: Pixels
    coverage: Pixels
    left: int
    top: int

    @property
    def pixels(self) -> Pixels:
        """Return colour and coverage in one array of four channels, so that both are warped together."""
        return np.dstack([self.colours, self.coverage])


def _used(mask: Mask, margin: int = 0) -> tuple[slice, slice]:
    """Return the part of a mask that is not empty: most shapes are small, and the rest need not be touched."""
    x, y, width, height = cv2.boundingRect((mask > 0).astype(np.uint8))
    return slice(max(0, y - margin), y + height + margin), slice(max(0, x - margin), x + width + margin)


def _blur(mask: Mask, sigma: float) -> Mask:
    """Blur a mask. A wide blur is made at a quarter of the size, in a sixteenth of the time."""
    if sigma < 4 * COARSER:
        return np.asarray(cv2.GaussianBlur(mask, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE), np.float32)
    height, width = mask.shape
    small = cv2.resize(mask, (-(-width // COARSER), -(-height // COARSER)), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma / COARSER, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR), np.float32)


class Layer:
    """A transparent sheet to paint on. Masks are 0 to 1 and belong to this size of layer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.side = size * FINER
        self._scale = self.side / DESIGN
        self._colours = np.zeros((self.side, self.side, 3), np.float32)
        self._coverage = np.zeros((self.side, self.side), np.float32)

    def mask(self, outline: Points, *, soft: float = 0.0) -> Mask:
        """Return the mask of an outline; `soft` blurs its edge, in units of the design."""
        drawn = np.zeros((self.side, self.side), np.uint8)
        corners = np.rint(outline * self._scale * (1 << SUBPIXEL_BITS)).astype(np.int32)
        cv2.fillPoly(drawn, [corners], (255,), cv2.LINE_AA, SUBPIXEL_BITS)
        return self.blurred(drawn.astype(np.float32) / np.float32(255), soft)

    def blurred(self, mask: Mask, soft: float) -> Mask:
        if soft <= 0:
            return mask
        part = _used(mask, margin=math.ceil(3 * soft * self._scale))
        blurred = np.zeros_like(mask)
        blurred[part] = _blur(mask[part], soft * self._scale)
        return blurred

    def moved(self, mask: Mask, x: float, y: float) -> Mask:
        shift = np.array([[1, 0, x * self._scale], [0, 1, y * self._scale]], np.float32)
        return np.asarray(cv2.warpAffine(mask, shift, (self.side, self.side)), np.float32)

    def paint(self, mask: Mask, colour: Any, opacity: float = 1.0) -> None:
        """Cover a mask with a colour, or with a picture of colours such as `gradient` returns."""
        part = _used(mask)
        share = mask[part] * np.float32(opacity)
        paint = np.asarray(colour, np.float32)
        self._colours[part] *= (1 - share)[..., None]
        self._colours[part] += share[..., None] * (paint[part] if paint.ndim == 3 else paint)
        self._coverage[part] *= 1 - share
        self._coverage[part] += share

    def fill(self, outline: Points, colour: Any, *, soft: float = 0.0, opacity: float = 1.0) -> None:
        self.paint(self.mask(outline, soft=soft), colour, opacity)

    def gradient(self, first: Colour, second: Colour, start: tuple[float, float], end: tuple[float, float]) -> Any:
        """Return colours that go from the first at `start` to the second at `end`."""
        line = np.array(end, np.float32) - start
        axis = (np.arange(self.side, dtype=np.float32) + 0.5) / self._scale
        along = ((axis[None, :] - start[0]) * line[0] + (axis[:, None] - start[1]) * line[1]) / float(line @ line)
        share = np.clip(along, 0, 1).astype(np.float32)[..., None]
        start_colour = np.array(first, np.float32)
        return start_colour + (np.array(second, np.float32) - start_colour) * share

    def sprite(self) -> Sprite:
        """Return the layer at its size, cut to what it covers."""
        whole = np.dstack([self._colours, self._coverage * 255])
        small = cv2.resize(whole, (self.size, self.size), interpolation=cv2.INTER_AREA)
        pixels = np.clip(np.rint(small), 0, 255).astype(np.uint8)
        ys, xs = np.nonzero(pixels[..., 3])
        top, bottom, left, right = ys.min(), ys.max() + 1, xs.min(), xs.max() + 1
        cut = pixels[top:bottom, left:right]
        return Sprite(np.ascontiguousarray(cut[..., :3]), np.ascontiguousarray(cut[..., 3]), int(left), int(top))
