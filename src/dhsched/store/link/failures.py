"""The errors of calls that the link itself gives up: one sentence each, with the numbers and a remedy."""

from dhsched.errors import StoreOverloaded, StoreUnavailable
from dhsched.store.link.connect import LinkSettings
from dhsched.store.link.wire import Call


def overloaded(call: Call, store: str, settings: LinkSettings, *, in_flight: int, unsent_bytes: int) -> StoreOverloaded:
    """Return the error for a call beyond the limits of a link."""
    return StoreOverloaded(
        f"{call} was not sent to store {store}: {in_flight} of {settings.in_flight_max} calls in flight and "
        f"{unsent_bytes} of {settings.unsent_max_bytes} bytes unsent; slow down, or find out why the store is slow"
    )


def not_sent(call: Call, store: str, why: str, *, refusal: str = "") -> StoreUnavailable:
    """Return the error for a call that was not sent before its deadline, or was sent and refused as it is said."""
    if not refusal:
        return StoreUnavailable(
            f"{call} was not sent to store {store} before its deadline ({why}): try again", unknown=False
        )
    moved = "the cell's slot is being moved to another node"
    reason = "the store was restarted or failed over" if refusal.startswith("HOME") else moved
    return StoreUnavailable(
        f"{call} did not run on store {store} before its deadline: {reason} ({refusal}); try again",
        unknown=False,
    )


def no_answer(call: Call, store: str, *, in_flight: int) -> StoreUnavailable:
    """Return the error for a call that was sent and not answered before its deadline."""
    return StoreUnavailable(
        f"no answer from store {store} to {call} within its deadline, with {in_flight} calls in flight: it may have "
        "run, repeat it with the same operation id",
        unknown=True,
    )
