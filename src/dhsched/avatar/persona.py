"""The persona of a live: a voice, a face and a background.

The DigitalID chooses. A DigitalID that is named like a face gets that face with its voice; any other name always gets
the same ones. A live's metadata and its configuration may override each field under the key `avatar`; a `config` item
changes the persona while the live goes on:

    {"avatar": {"voice": "zola", "face": "emi", "background": "dusk"}}

An unknown choice is ignored with a warning: a wrong name must not take a live down on every Worker.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from dhsched.avatar.espeak import VOICES
from dhsched.avatar.looks import BACKGROUNDS, FACES

log = structlog.get_logger(__name__)

KEY = "avatar"


@dataclass(frozen=True, slots=True)
class Persona:
    voice: str
    face: str
    background: str


def persona_of(digital_id: str, *options: Mapping[str, object]) -> Persona:
    """Return the DigitalID's persona with the overrides of `options`; the last one wins."""
    persona = _by_name(digital_id)
    for option in options:
        for name, value in _asked(option).items():
            known = CHOICES.get(name)
            if known is not None and isinstance(value, str) and value in known:
                persona = replace(persona, **{name: value})
            else:
                there_are = f"there are {', '.join(known)}" if known else f"known are {', '.join(CHOICES)}"
                log.warning("avatar: unknown choice, ignored", asked=f"{name}={value!r}"[:100], reason=there_are)
    return persona


CHOICES: dict[str, tuple[str, ...]] = {
    "voice": tuple(VOICES),
    "face": tuple(FACES),
    "background": tuple(BACKGROUNDS),
}


def _by_name(digital_id: str) -> Persona:
    faces, backgrounds = tuple(FACES), tuple(BACKGROUNDS)
    chance = zlib.crc32(digital_id.encode())
    own = digital_id in FACES
    face = digital_id if own else faces[chance % len(faces)]
    behind = faces.index(face) if own else chance // len(faces)
    return Persona(face, face, backgrounds[behind % len(backgrounds)])


def _asked(option: Mapping[str, object]) -> dict[str, object]:
    found = option.get(KEY)
    return found if isinstance(found, dict) else {}
