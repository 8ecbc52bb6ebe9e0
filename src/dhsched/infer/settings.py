"""Settings of an Infer-Controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dhsched.settings import ReplicaSettings, bounded, free


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSettings(ReplicaSettings):
    """The settings of one Infer-Controller."""

    ROLE: ClassVar[str] = "infer"

    store: str | None = free(None, "The store's URL, the same as Dispatch's.", secret=True)
    port: int = bounded(7401, 0, 65535, "The port to listen on; 0 takes any free port.")
    name: str = free("", "The controller's id, unique among running controllers; generated when empty.")
    advertise: str = free("", "The URL at which Workers reach this controller; from host and port when empty.")
    room: str = free("", "The URL of the room at which Workers publish; no room when empty.")
    credit: int = bounded(8, 1, 1_000, "Items that one live's Worker may have unacked.")
    text_bytes_max: int = bounded(16_384, 1, 65_536, "Bytes of one item's text; a longer one is refused.")
    join_ms: int = bounded(40, 1, 1_000, "Longest time for which tokens of a stream are joined into one item.")
    in_flight_max: int = bounded(512, 1, 100_000, "Requests worked on at once; further ones get 503 BUSY.")
    stream_in_flight_max: int = bounded(1_000, 1, 100_000, "Unanswered items of one stream; past it no more are read.")
    streams_max: int = bounded(10_000, 1, 1_000_000, "Streams and watchers at once; further ones get 503 BUSY.")
    deadline_s: float = bounded(5, 0.1, 60, "Time for the store to take a push; after it 503.")
    memory_max: float = bounded(0.9, 0.1, 1.0, "Used share of the store's memory past which input is refused.")
    watch_s: float = bounded(0.2, 0.02, 10, "Time between two readings of a live whose events are watched.")
    log_lines_max: int = bounded(300, 0, 10_000, "Log lines of its runtimes kept per live; 0 keeps none.")
    log_bytes_max: int = bounded(32_768, 2_048, 1_048_576, "Bytes of log lines kept per live.")
    log_lines_per_s: float = bounded(1_000, 1, 100_000, "Log lines that this controller writes per second.")
    otlp: str = free(
        "",
        "URL of an OpenTelemetry collector that gets traces of items by OTLP over HTTP; needs the extra otel. "
        "Empty: items are not traced.",
    )
    stop_s: float = bounded(5, 0, 600, "Time for requests in flight when the controller stops.")
