"""What the documents are made of."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Json = Annotated[dict[str, Any], msgspec.Meta(description="Any JSON object; stored as it is, for the runtime.")]
Optional = msgspec.UnsetType
UNSET = msgspec.UNSET


class Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request: a field that the server does not know is refused."""


def one_of(*words: str) -> msgspec.Meta:
    """For a word of an answer: servers give one of `words`, and clients take any, as a newer server may have more."""
    return msgspec.Meta(extra_json_schema={"enum": sorted(words)})
