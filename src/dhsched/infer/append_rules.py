"""Rules that a POST and a stream share: the stored form of an item, its retries, and the problems of its client."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from dhsched.errors import CellAway, StoreUnavailable
from dhsched.ownership import outcomes as o
from dhsched.types import Kind, check_nesting
from dhsched.web.problems import Problem

RETRY_S = 0.1  # Between two tries of an append whose outcome is unknown.


class Attempts(msgspec.Struct, gc=False):
    """The tries of one append that has a request id: the same row may be sent again and is stored once."""

    give_up_at: float
    unknown: bool = False  # Whether a try may have been stored.

    def failed(self, error: StoreUnavailable, now: float) -> StoreUnavailable | None:
        """Note a failed try; return None if the row is to be sent again after RETRY_S, or the error for the client."""
        self.unknown = self.unknown or error.unknown
        if now + RETRY_S < self.give_up_at and not isinstance(error, CellAway):
            return None
        return StoreUnavailable(str(error), unknown=self.unknown)


def store_full(share: float, memory_max: float) -> Problem | None:
    """Return the problem that refuses items past `memory_max`, or None: acks, departs and ends need the rest of the
    store's memory, and free some."""
    if share < memory_max:
        return None
    return Problem(
        "STORE_FULL",
        f"the store uses {share:.0%} of its memory, and input is taken up to {memory_max:.0%}; end lives, or give the "
        "store more memory",
        memory_share=round(share, 3),
    )


def new_request() -> str:
    """Return a request id for an item without one."""
    return f"r-{secrets.token_hex(10)}"


def request_ids() -> Callable[[], str]:
    """Return a function that returns another request id at each call, at a quarter of the cost of `new_request`: all
    ids of one function have the same random beginning, and a number."""
    return map(f"r-{secrets.token_hex(8)}-{{:x}}".format, count(1)).__next__


def payload_of(kind: Kind, text: str, config: Any, bytes_max: int) -> bytes:
    """Return the stored payload of an item; refuse one that is longer than `bytes_max`, or does not fit its kind."""
    if kind == "config":
        if config is msgspec.UNSET:
            raise Problem("BAD_REQUEST", "an item of kind config has the whole configuration in `config`", field="$")
        try:
            payload = msgspec.json.encode(config)
        except RecursionError:
            payload = b""  # `check_nesting` says why it is refused.
    elif config is not msgspec.UNSET:
        raise Problem("BAD_REQUEST", f"an item of kind {kind} has no `config`; its kind would be config", field="$")
    else:
        payload = text.encode()
    if len(payload) > bytes_max:
        raise Problem(
            "TOO_LARGE",
            f"the item has {len(payload)} bytes, at most {bytes_max} are taken; split it",
            bytes_max=bytes_max,
        )
    if kind == "config":
        check_nesting(config, "config")  # Here, because it is short by now.
    return payload


def refusal(live_id: str, outcome: o.AppendOutcome) -> Problem | None:
    """Return the problem for an append that was refused; None when the item is stored."""
    match outcome:
        case o.NotFound():
            return Problem("NOT_FOUND", f"there is no live {live_id}; create it first")
        case o.Ended():
            return Problem("ENDED", f"live {live_id} has ended; create another one")
        case o.Closing():
            return Problem("CLOSING", f"live {live_id} ends after what is pending; create another one")
        case o.Gap(last):
            detail = f"live {live_id}: the last item from this producer is {last}; send {last + 1} and what follows"
            return Problem("GAP", detail, last=last)
        case o.TooManyPending(pending):
            detail = f"live {live_id} has {pending} items pending, as many as it may; wait for its Worker to ack some"
            return Problem("TOO_MANY_PENDING", detail, pending=pending)
        case o.TooManyProducers(producers):
            detail = (
                f"live {live_id} remembers {producers} producers, as many as it may; reuse one of them, or wait until "
                "one was silent for 10 minutes"
            )
            return Problem("TOO_MANY_PRODUCERS", detail, producers=producers)
    return None
