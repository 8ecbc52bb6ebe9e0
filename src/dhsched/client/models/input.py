"""Input: one item in a request, and many on a stream."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dhsched.client.models.base import UNSET, Identity, Optional, Strict
from dhsched.types import NUMBER_MAX, Id, Kind


class Item(Strict):
    """One item. An interrupt drops the pending items; a config item carries the whole configuration, in `config`."""

    text: Annotated[str, msgspec.Meta(max_length=65_536)] = ""
    kind: Kind = "text"
    boundary: Annotated[bool, msgspec.Meta(description="A sentence ends here: a good place to move the live.")] = False
    config: dict[str, Any] | Optional = UNSET


class PushText(Item):
    """One item in a request of its own."""

    request_id: Id | Optional = UNSET
    viewer: Annotated[
        bool, msgspec.Meta(description="Typed by a viewer. Everything that comes with a key of role room is.")
    ] = False
    identity: Identity = ""
    """Who typed it; of a viewer's item only."""


class Pushed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The item is stored as number `seq` of its live; `duplicate` if it was stored before, maybe without `seq`.

    `dropped` is how many items an interrupt has dropped: those right before it.
    """

    live_id: str
    request_id: str
    seq: int | None = None
    duplicate: bool = False
    dropped: int = 0


class Push(Item):
    """One message of a stream (infer/stream.py)."""

    live: Id | Optional = UNSET
    n: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] = 0
    token: Annotated[str, msgspec.Meta(max_length=4_096)] | Optional = UNSET


class Answer(msgspec.Struct, omit_defaults=True):
    """One reply: the item is stored as `seq`, or was stored before, or `problem` says why it is not. `dropped` is how
    many items an interrupt has dropped."""

    live: str
    n: int = 0
    tokens: int = 0
    seq: int = 0
    duplicate: bool = False
    problem: dict[str, Any] | None = None
    dropped: int = 0
