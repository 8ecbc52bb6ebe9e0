"""Addresses of servers: one or several, separated by commas, checked before the first call."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from dhsched.errors import BadAddress

DISPATCH = ("http://127.0.0.1:7400", "http://127.0.0.1:7410")
"""Default addresses of Dispatch: the two replicas of `dhsched up`."""
INFER = ("http://127.0.0.1:7401",)


def addresses(what: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses in `given`, in order and without a final slash. `what` names the server in an error."""
    listed = [given] if isinstance(given, str) else given
    found = tuple(url.strip().rstrip("/") for each in listed for url in each.split(",") if url.strip())
    if not found:
        raise BadAddress(f"no address of {what} was given; write it like {DISPATCH[0]}")
    for url in found:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # The port is not a number or out of range, or a bracket is missing.
            usable = False
        if not usable:
            raise BadAddress(
                f"{what} address {url!r} must look like {DISPATCH[0]}; several are separated by commas"
            ) from None
    return found
