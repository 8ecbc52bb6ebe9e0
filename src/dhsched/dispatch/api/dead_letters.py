"""Dead letters over HTTP: list, drop and push again input that was dropped because generations died of it."""

from __future__ import annotations

import hashlib

from dhsched.client.models import lives as m
from dhsched.client.models.base import LivePath
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.lives import find_live, not_found
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.commit import retry_unknown
from dhsched.ownership import items
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import Live
from dhsched.types import live_key
from dhsched.web import Endpoint, Problem, Reply, Request


class DeadLetters(Part):
    """The endpoints of dead letters, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="list_dead_letters",
                method="GET",
                path="/v1/lives/{live_id}/dead-letters",
                handler=self.letters,
                summary="Input that was dropped because generations died of it.",
                tag="dead letters",
                path_type=LivePath,
                replies={200: m.DeadLetters},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="drop_dead_letter",
                method="DELETE",
                path="/v1/lives/{live_id}/dead-letters/{letter}",
                handler=self.drop,
                summary="Delete a dead letter.",
                tag="dead letters",
                path_type=p.DeadPath,
                replies={204: None},
                problems=["NOT_FOUND"],
            ),
            Endpoint(
                name="push_dead_letter_again",
                method="POST",
                path="/v1/lives/{live_id}/dead-letters/{letter}/push",
                handler=self.push_again,
                summary="Append a dead letter to the live's input once more.",
                tag="dead letters",
                path_type=p.DeadPath,
                replies={200: m.PushedAgain},
                problems=["NOT_FOUND", "ENDED", "CLOSING", "TOO_MANY_PENDING", "STORE_FULL"],
            ),
        ]

    async def letters(self, asked: Request) -> m.DeadLetters:
        live_id = asked.path.live_id
        record = await find_live(self.context, asked, live_id)
        return m.DeadLetters(live_id, [dead_letter(stored) for stored in record.dead])

    async def drop(self, asked: Request) -> Reply:
        _, stored = await self._find(asked)
        await self._forget(asked, stored)
        return Reply(status=204)

    async def push_again(self, asked: Request) -> m.PushedAgain:
        """Append the dead letter to the live's input, then delete it: a crash between the two loses nothing.

        A retry appends nothing twice: the request id is made of the letter and of the live's count of poison, which is
        higher when the same item was dropped again since.
        """
        live_id, context = asked.path.live_id, self.context
        record, stored = await self._find(asked)
        live, item = live_key(asked.caller.tenant, live_id), items.read(items.read_dead_letter(stored)[0])
        outcome = await retry_unknown(
            context,
            "push_again",
            lambda: context.store.append_input(
                live=live,
                kind=item.kind,
                payload=item.payload,
                boundary=item.boundary,
                request=f"dead-{letter_id(stored)}-{record.dropped_poison}",
            ),
        )
        match outcome:
            case o.Appended(seq):
                number: int | None = seq
            case o.Duplicate():
                number = None
            case o.NotFound():
                raise not_found(live_id)
            case o.TooManyPending(pending):
                detail = f"live {live_id} has {pending} items pending, which is the limit; push again later"
                raise Problem("TOO_MANY_PENDING", detail, live_id=live_id, pending=pending)
            case o.Ended():
                raise Problem("ENDED", f"live {live_id} has ended and takes no input", live_id=live_id)
            case _:
                raise Problem("CLOSING", f"live {live_id} is closing and takes no more input", live_id=live_id)
        await self._forget(asked, stored)
        return m.PushedAgain(live_id, number)

    async def _find(self, asked: Request) -> tuple[Live, bytes]:
        record = await find_live(self.context, asked, asked.path.live_id)
        for stored in record.dead:
            if letter_id(stored) == asked.path.letter:
                return record, stored
        raise Problem(
            "NOT_FOUND",
            f"live {asked.path.live_id} has no dead letter {asked.path.letter}; list its {len(record.dead)} others",
            live_id=asked.path.live_id,
        )

    async def _forget(self, asked: Request, stored: bytes) -> None:
        live = live_key(asked.caller.tenant, asked.path.live_id)
        await retry_unknown(
            self.context,
            "drop_dead",
            lambda: self.context.store.records.lives.drop_dead_letter(live, stored),
        )


def letter_id(stored: bytes) -> str:
    return hashlib.sha256(stored).hexdigest()[:16]


def dead_letter(stored: bytes) -> m.DeadLetter:
    blob, reason = items.read_dead_letter(stored)
    item = items.read(blob)
    return m.DeadLetter(letter_id(stored), item.kind, item.boundary, item.payload.decode(errors="replace"), reason)
