"""Settings of an Infer-Controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dhsched.settings import ReplicaSettings, bounded, free


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSettings(ReplicaSettings):
    """One Infer-Controller."""

    ROLE: ClassVar[str] = "infer"

    store: str | None = free(None, "The store's URL; Dispatch must use the same one.", secret=True)
    port: int = bounded(7401, 0, 65535, "Where to listen; 0 takes any free port.")
    name: str = free("", "The controller's id, which no other running one may have; made up when empty.")
    advertise: str = free("", "The URL at which Workers reach this controller; from host and port when empty.")
    room: str = free("", "The URL of the room at which Workers publish; without one there is none.")
    credit: int = bounded(8, 1, 1_000, "Items of one live that its Worker may have unacked.")
    text_bytes_max: int = bounded(16_384, 1, 65_536, "Of one item.")
    join_ms: int = bounded(40, 1, 1_000, "Tokens of a stream are joined for at most this long.")
    in_flight_max: int = bounded(512, 1, 100_000, "Requests worked on at once; past it 503 BUSY.")
    stream_in_flight_max: int = bounded(1_000, 1, 100_000, "Items of one stream that are not yet stored.")
    streams_max: int = bounded(10_000, 1, 1_000_000, "Streams and watchers at once.")
    deadline_s: float = bounded(5, 0.1, 60, "For a push.")
    memory_max: float = bounded(0.9, 0.1, 1.0, "The share of the store's memory past which input is refused.")
    watch_s: float = bounded(0.2, 0.02, 10, "Between two looks at a live whose events are watched.")
    stop_s: float = bounded(5, 0, 600, "For requests in flight when the controller stops.")
