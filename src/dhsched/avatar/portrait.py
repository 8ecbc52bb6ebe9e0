"""The parts of a face that do not change from frame to frame, painted once for each look, background and size.

Two pictures: the backdrop with shoulders, neck and the hair behind them, which stands still, and the head without
eyes, brows and mouth, which is moved as a whole. Lives with the same face share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dhsched.avatar.canvas import (
    DESIGN,
    Layer,
    Mask,
    Pixels,
    Points,
    Sprite,
    ellipse,
    mirrored,
    mix,
    points,
    ribbon,
    smooth,
)
from dhsched.avatar.hair import BEHIND, FRONT, STRANDS
from dhsched.avatar.looks import BACKGROUNDS, FACES, Backdrop, Look

KEPT_MAX = 64  # Of either picture, a third of a megabyte each at 320; past this the least recently used is repainted.
MIDDLE = DESIGN / 2
BLACK, WHITE = (0, 0, 0), (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Portrait:
    """The still parts of one face at one size."""

    look: Look
    backdrop: Pixels
    head: Sprite


def portrait(face: str, background: str, size: int) -> Portrait:
    look = FACES[face]
    return Portrait(look, _backdrop(look, BACKGROUNDS[background], size), _head(look, size))


# -- the backdrop


@lru_cache(maxsize=KEPT_MAX)
def _backdrop(look: Look, behind: Backdrop, size: int) -> Pixels:
    sheet = Layer(size)
    everything = np.ones((sheet.side, sheet.side), np.float32)
    sheet.paint(everything, sheet.gradient(behind.top, behind.bottom, (140, 0), (180, DESIGN)))
    for x, y, radius in behind.lights:
        sheet.fill(ellipse(x, y, radius, radius), behind.light, soft=radius * 0.4, opacity=0.16)
    sheet.fill(ellipse(MIDDLE, 150, 120, 130), behind.light, soft=42, opacity=0.16)
    sheet.paint(1 - sheet.mask(ellipse(MIDDLE, 150, 190, 180), soft=50), BLACK, 0.28)  # Darker towards the edges.
    _hair_behind(sheet, look)
    _body(sheet, look)
    return sheet.sprite().colours


def _hair_behind(sheet: Layer, look: Look) -> None:
    """Paint the part of the hair that falls behind the neck."""
    if (half := BEHIND.get(look.hair_style)) is None:
        return
    outline = smooth(mirrored(half))
    if look.hair_style == "curls":
        outline = _curly(outline, 5.0)
    dark = mix(look.hair, BLACK, 0.34)
    mask = sheet.mask(outline)
    sheet.paint(mask, sheet.gradient(mix(look.hair, BLACK, 0.12), dark, (90, 60), (200, 260)))
    sheet.paint(sheet.mask(ellipse(MIDDLE, 214, 54, 46), soft=16) * mask, BLACK, 0.42)


def _curly(outline: Points, depth: float) -> Points:
    """Return the same outline in locks."""
    turn = np.arange(len(outline)) * (2 * np.pi * 26 / len(outline))
    away = outline - outline.mean(0)
    away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1)
    wavy: Points = (outline + away * (np.abs(np.sin(turn / 2))[:, None] * depth)).astype(np.float32)
    return wavy


def _body(sheet: Layer, look: Look) -> None:
    wide = 6 * (look.jaw - 1) * 4
    neck = smooth(mirrored(points((0, 190), (28 + wide, 192), (29 + wide, 236), (38 + wide, 258), (24, 284), (0, 292))))
    shoulders = smooth(
        mirrored(
            points((0, 262), (30, 256), (62 + wide, 266), (104 + wide, 280), (128 + wide, 304), (140, 350), (0, 360))
        )
    )
    shirt = sheet.mask(shoulders)
    sheet.paint(shirt, sheet.gradient(mix(look.shirt, WHITE, 0.12), mix(look.shirt, BLACK, 0.3), (90, 258), (240, 330)))
    for side in (-1, 1):
        fold = smooth(
            points((MIDDLE + side * 44, 270), (MIDDLE + side * 62, 292), (MIDDLE + side * 66, 324)), closed=False
        )
        sheet.paint(sheet.mask(ribbon(fold, 9), soft=4) * shirt, BLACK, 0.16)
    opening = smooth(mirrored(points((0, 250), (34 + wide, 250), (37 + wide, 262), (20, 282), (0, 288))))
    collar = sheet.mask(smooth(mirrored(points((0, 250), (40 + wide, 250), (43 + wide, 264), (24, 288), (0, 295)))))
    sheet.paint(collar * shirt, mix(look.shirt, BLACK, 0.28))
    skin = sheet.mask(neck) * np.maximum(1 - shirt, sheet.mask(opening))
    sheet.paint(
        skin,
        sheet.gradient(mix(look.skin, look.shadow, 0.3), mix(look.skin, look.shadow, 0.62), (130, 200), (196, 280)),
    )
    # The shadow of the chin.
    sheet.paint(sheet.mask(ellipse(MIDDLE + 4, 226, 46, 25), soft=6) * skin, mix(look.shadow, BLACK, 0.2), 0.62)
    for side in (-1, 1):
        bone = smooth(
            points((MIDDLE + side * 8, 281), (MIDDLE + side * 20, 273), (MIDDLE + side * 33, 268)), closed=False
        )
        sheet.paint(sheet.mask(ribbon(bone, 3), soft=1.6) * skin, look.shadow, 0.4)


# -- the head


def face_outline(look: Look) -> Points:
    jaw = look.jaw
    half = points(
        (0, 54), (34, 57), (56, 78), (64, 112), (64, 146),
        (60 + 2 * jaw, 170), (49 * jaw, 200), (25 * jaw, 225), (0, 233),
    )  # fmt: skip
    return smooth(mirrored(half))


@lru_cache(maxsize=KEPT_MAX)
def _head(look: Look, size: int) -> Sprite:
    sheet = Layer(size)
    _ears(sheet, look)
    face = sheet.mask(face_outline(look))
    light = mix(look.skin, WHITE, 0.16)
    sheet.paint(face, sheet.gradient(light, mix(look.skin, look.shadow, 0.34), (116, 78), (232, 236)))
    _model(sheet, look, face)
    if look.beard:
        _beard(sheet, look, face)
    _nose(sheet, look)
    hair = _hair(sheet, look)
    # The shadow that the hair throws on the forehead.
    sheet.paint(sheet.blurred(sheet.moved(hair, 3, 7), 4) * face * (1 - hair), look.shadow, 0.5)
    return sheet.sprite()


def _ears(sheet: Layer, look: Look) -> None:
    for side in (-1, 1):
        x = MIDDLE + side * 65
        sheet.fill(ellipse(x, 154, 10, 18, tilt=side * 8), mix(look.skin, look.shadow, 0.28))
        sheet.fill(ellipse(x + side, 154, 5, 11, tilt=side * 8), look.shadow, soft=1.6, opacity=0.45)


def _model(sheet: Layer, look: Look, face: Mask) -> None:
    """Paint light from the upper left: parts that turn away are darker, parts that come forward lighter."""
    away = sheet.blurred(np.clip(face - sheet.moved(face, -15, -5), 0, 1), 9)
    sheet.paint(away * face, look.shadow, 0.5)
    rim = sheet.blurred(np.clip(face - sheet.moved(face, 9, 0), 0, 1), 7)
    sheet.paint(rim * face, look.shadow, 0.16)
    for side in (-1, 1):
        sheet.paint(sheet.mask(ellipse(MIDDLE + side * 27, 141, 23, 15), soft=7) * face, look.shadow, 0.3)
        sheet.paint(sheet.mask(ellipse(MIDDLE + side * 38, 178, 17, 12), soft=8) * face, look.blush, 0.42)
        sheet.paint(sheet.mask(ellipse(MIDDLE + side * 36, 166, 13, 6), soft=6) * face, WHITE, 0.12)
    sheet.paint(sheet.mask(ellipse(MIDDLE - 10, 96, 32, 16), soft=14) * face, WHITE, 0.14)
    sheet.paint(sheet.mask(ellipse(MIDDLE - 2, 222, 12, 6), soft=5) * face, WHITE, 0.16)
    sheet.paint(sheet.mask(ellipse(MIDDLE, 212.5, 13, 3.5), soft=3) * face, look.shadow, 0.26)


def _nose(sheet: Layer, look: Look) -> None:
    side = smooth(
        points((MIDDLE + 7, 142), (MIDDLE + 6, 158), (MIDDLE + 11, 173), (MIDDLE + 7, 179), (MIDDLE + 3, 164))
    )
    sheet.fill(side, look.shadow, soft=3.2, opacity=0.5)
    ridge = smooth(points((MIDDLE - 1, 138), (MIDDLE - 1.5, 156), (MIDDLE - 1, 170)), closed=False)
    sheet.fill(ribbon(ridge, 5), WHITE, soft=2.6, opacity=0.3)
    sheet.fill(ellipse(MIDDLE - 1.5, 172, 4, 3), WHITE, soft=2, opacity=0.3)
    under = smooth(
        points(
            (MIDDLE - 12, 176), (MIDDLE - 8.5, 180.5), (MIDDLE - 3.5, 180), (MIDDLE, 182), (MIDDLE + 3.5, 180),
            (MIDDLE + 8.5, 180.5), (MIDDLE + 12, 176),
        ),
        closed=False,
    )  # fmt: skip
    sheet.fill(ribbon(under, 2.3, taper=0.7), mix(look.shadow, BLACK, 0.22), soft=0.35, opacity=0.8)
    for at in (-1, 1):
        sheet.fill(
            ellipse(MIDDLE + at * 6.2, 179.6, 3.0, 1.5, tilt=-at * 14),
            mix(look.shadow, BLACK, 0.5),
            soft=0.4,
            opacity=0.75,
        )
        wing = smooth(
            points((MIDDLE + at * 11, 169), (MIDDLE + at * 14, 174.5), (MIDDLE + at * 11.6, 178.5)), closed=False
        )
        sheet.fill(ribbon(wing, 1.7), look.shadow, soft=0.5, opacity=0.75)
    sheet.fill(ellipse(MIDDLE, 189, 2.6, 4.5), look.shadow, soft=1.6, opacity=0.3)


def _beard(sheet: Layer, look: Look, face: Mask) -> None:
    low = smooth(mirrored(points((0, 188), (24, 187), (40, 192), (58, 160), (72, 166), (60, 226), (0, 250))))
    sheet.paint(sheet.mask(low, soft=3.4) * face, mix(look.hair, look.shadow, 0.4), 0.62 * look.beard)
    sheet.paint(sheet.mask(ellipse(MIDDLE, 203, 19, 6.5), soft=3) * face, look.skin, 0.4 * look.beard)


def _hair(sheet: Layer, look: Look) -> Mask:
    """Paint the hair in front; return its mask."""
    outline = smooth(FRONT[look.hair_style])
    if look.hair_style == "curls":
        outline = _curly(outline, 4.0)
    hair = sheet.mask(outline)
    if look.hair_style == "bun":
        knot = sheet.mask(ellipse(MIDDLE + 2, 36, 27, 22))
        sheet.paint(knot, sheet.gradient(look.hair, mix(look.hair, BLACK, 0.4), (140, 18), (186, 56)))
        sheet.paint(sheet.mask(ellipse(MIDDLE - 6, 28, 10, 5, tilt=-24), soft=3) * knot, look.hair_light, 0.6)
    sheet.paint(
        hair, sheet.gradient(mix(look.hair, look.hair_light, 0.22), mix(look.hair, BLACK, 0.3), (104, 44), (232, 140))
    )
    shine = smooth(points((98, 92), (112, 70), (140, 59), (172, 60)), closed=False)
    sheet.paint(sheet.mask(ribbon(shine, 11, taper=0.9), soft=4.5) * hair, look.hair_light, 0.62)
    for start, bend, end in STRANDS[look.hair_style]:
        strand = smooth(points(start, bend, end), closed=False)
        sheet.paint(sheet.mask(ribbon(strand, 1.8, taper=0.95), soft=0.4) * hair, mix(look.hair, BLACK, 0.5), 0.5)
    return hair
