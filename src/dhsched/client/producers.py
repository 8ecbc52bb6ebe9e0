"""The names under which a client's streams number their items, kept from one stream to the next.

A live remembers few producers, each for ten minutes at least, because it must know the last number of each. An app that
opens a stream for every turn of a conversation would use them up, so a stream that has ended with everything stored
passes its name and its last number on to the next stream of the same client to the same live.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

LIVES_MAX = 10_000  # Past this the live that was used longest ago is forgotten; its next stream takes a new name.
KEPT_MAX = 8  # Per live; further names are dropped, because the store remembers no more.


@dataclass(slots=True)
class Producer:
    """A producer's name, and the last number that was used under it."""

    name: str
    n: int = 0


def new_producer() -> Producer:
    return Producer(f"p-{secrets.token_hex(6)}")


class Producers:
    """Names that ended streams of one client have passed on, by live."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[Producer]] = OrderedDict()

    def take(self, live_id: str) -> Producer:
        """Return a producer that no other stream uses now."""
        kept = self._kept.get(live_id)
        return kept.pop() if kept else new_producer()

    def leave(self, live_id: str, producer: Producer) -> None:
        """Keep a producer for the next stream: all its items are stored, and none is in flight."""
        kept = self._kept.setdefault(live_id, [])
        self._kept.move_to_end(live_id)
        if len(kept) < KEPT_MAX:
            kept.append(producer)
        if len(self._kept) > LIVES_MAX:
            self._kept.popitem(last=False)
