"""Messages between start services and bots, about offers of SmallWebRTC clients."""

from __future__ import annotations

from typing import Any, Self

import msgspec

MESSAGE_BYTES_MAX = 256 * 1024  # A longer message ends its connection.
SERVICES_MAX = 8  # A bot dials so many start services, and ignores the others of its live.
CANDIDATES_MAX = 100
MALFORMED, REFUSED, SUPERSEDED = 4400, 4403, 4409
"""Why a service closes a bot's connection. A superseded generation lets its client go, and dials again."""
METADATA = "pipecat"
"""The field of a live's metadata that says where its bots find their clients."""


class Candidate(msgspec.Struct):
    """A candidate, as Pipecat's clients send it."""

    candidate: str
    sdp_mid: str | None = None
    sdp_mline_index: int | None = None


class Request(msgspec.Struct, omit_defaults=True):
    """An offer with its `sdp`, or candidates, for the client's connection `pc_id`."""

    id: int = 0
    sdp: str = ""
    pc_id: str | None = None
    restart_pc: bool | None = None
    candidates: list[Candidate] = msgspec.field(default_factory=list)


class Answered(msgspec.Struct, omit_defaults=True):
    """The answer to the request `id`; `error` if there is none."""

    id: int = 0
    answer: dict[str, str] | None = None
    error: str = ""


class Hello(msgspec.Struct):
    """The first message of a bot, which names its live and generation."""

    live: str
    epoch: int
    secret: str


class Calling(msgspec.Struct):
    """Where the bots of a live find its client: the live's metadata has it."""

    live: str
    services: list[str]
    secret: str

    @classmethod
    def of(cls, metadata: dict[str, Any]) -> Self | None:
        """Return the services that the metadata names; None if it names none or cannot be read."""
        try:
            return msgspec.convert(metadata.get(METADATA), cls)
        except msgspec.ValidationError:
            return None
