"""The faces and backgrounds, by name: only colours and shapes.

A new face is one more entry in FACES; a new background one more in BACKGROUNDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dhsched.avatar.canvas import Colour, rgb

Hair = Literal["long", "bob", "short", "swept", "curls", "bun"]


@dataclass(frozen=True, slots=True)
class Look:
    """One face."""

    skin: Colour
    shadow: Colour
    blush: Colour
    lips: Colour
    hair: Colour
    hair_light: Colour
    hair_style: Hair
    eyes: Colour
    shirt: Colour
    jaw: float = 1.0  # Width of the jaw; 1 is oval, more is square.
    brows: float = 1.0  # How strong they are.
    lashes: float = 1.0
    glasses: bool = False
    beard: float = 0.0  # From none to 1.


FACES: dict[str, Look] = {
    "anna": Look(
        skin=rgb("f5cdaf"), shadow=rgb("c98863"), blush=rgb("e87f6e"), lips=rgb("c25b5f"), hair=rgb("5a3522"),
        hair_light=rgb("9a623c"), hair_style="long", eyes=rgb("4d7f9e"), shirt=rgb("2f7d8c"), jaw=0.94,
    ),
    "ben": Look(
        skin=rgb("ecbe98"), shadow=rgb("b57b55"), blush=rgb("d9735c"), lips=rgb("b9685f"), hair=rgb("2e211b"),
        hair_light=rgb("5f4636"), hair_style="swept", eyes=rgb("6b5132"), shirt=rgb("3c4f76"), jaw=1.1, brows=1.3,
        lashes=0.4, beard=0.55,
    ),
    "chidi": Look(
        skin=rgb("8d5a3c"), shadow=rgb("57311f"), blush=rgb("a34e38"), lips=rgb("8a4640"), hair=rgb("19130f"),
        hair_light=rgb("3d2d24"), hair_style="short", eyes=rgb("3d2617"), shirt=rgb("d08a35"), jaw=1.08, brows=1.3,
        lashes=0.4,
    ),
    "dora": Look(
        skin=rgb("fbdcc6"), shadow=rgb("d79a79"), blush=rgb("ef8a76"), lips=rgb("cf6358"), hair=rgb("b3542a"),
        hair_light=rgb("e08c4f"), hair_style="bun", eyes=rgb("5b8a5a"), shirt=rgb("4b5a94"), jaw=0.96, glasses=True,
    ),
    "emi": Look(
        skin=rgb("f3d0b0"), shadow=rgb("c99168"), blush=rgb("eb8478"), lips=rgb("c4545c"), hair=rgb("1d1a20"),
        hair_light=rgb("4a4558"), hair_style="bob", eyes=rgb("4a3325"), shirt=rgb("b5533c"), jaw=0.95,
    ),
    "zola": Look(
        skin=rgb("b27850"), shadow=rgb("764527"), blush=rgb("c9604a"), lips=rgb("a8484a"), hair=rgb("24170f"),
        hair_light=rgb("5b3b26"), hair_style="curls", eyes=rgb("51351f"), shirt=rgb("7a4c8f"), jaw=0.98,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Backdrop:
    """One background: two colours from top to bottom, and soft lights in it."""

    top: Colour
    bottom: Colour
    light: Colour
    lights: tuple[tuple[float, float, float], ...] = ()  # x, y and radius of each.


BACKGROUNDS: dict[str, Backdrop] = {
    "dusk": Backdrop(
        rgb("33507c"), rgb("18243f"), rgb("8fb6e8"), ((52, 60, 26), (280, 96, 34), (248, 32, 16), (24, 150, 18))
    ),
    "plum": Backdrop(rgb("5b3a72"), rgb("251739"), rgb("d69be0"), ((270, 52, 32), (40, 110, 24), (78, 30, 14))),
    "forest": Backdrop(rgb("2d6b55"), rgb("0e2c24"), rgb("a6e0b8"), ((44, 48, 30), (286, 140, 26), (236, 40, 18))),
    "sand": Backdrop(rgb("ead9c0"), rgb("c3a57f"), rgb("fff6e4"), ((60, 70, 40), (272, 60, 28), (292, 150, 20))),
    "studio": Backdrop(rgb("cfd6de"), rgb("8d99a8"), rgb("ffffff"), ((160, 120, 110),)),
    "coral": Backdrop(rgb("f0a58f"), rgb("b9586a"), rgb("ffe0c8"), ((50, 90, 34), (276, 46, 26), (290, 170, 18))),
}
