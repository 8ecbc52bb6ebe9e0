"""Types that the documents share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dhsched.access.viewers import IDENTITY_PATTERN
from dhsched.types import LIFETIME_MAX_S, LIFETIME_MIN_S, Id, whole

Json = Annotated[dict[str, Any], msgspec.Meta(description="Any JSON object; stored as it is, for the runtime.")]
Identity = Annotated[
    str, whole(IDENTITY_PATTERN, description="Who a viewer is, as the app says: text without control characters.")
]
Lifetime = Annotated[
    float, msgspec.Meta(ge=LIFETIME_MIN_S, le=LIFETIME_MAX_S, description="Seconds, from 1 to 30 days.")
]
Optional = msgspec.UnsetType
UNSET = msgspec.UNSET


class Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request; the server refuses a field that it does not know."""


CellName = Annotated[str, msgspec.Meta(description="The cell, where the deployment has several; else left out.")]
LeftOut = Annotated[
    list[str], msgspec.Meta(description="Cells that could not be asked, so what they have is missing; else left out.")
]


class LivePath(Strict):
    live_id: Id


def one_of(*words: str) -> msgspec.Meta:
    """Return the metadata of an answer's enumeration: servers send one of `words`, clients accept any."""
    return msgspec.Meta(extra_json_schema={"enum": sorted(words)})
