"""Which Infer-Controller serves a live, of those that run: Workers and Dispatch choose by one rule.

A Worker pulls a live's input from the controller that the live prefers, and Dispatch passes the live's input on to the
same one. So what is pushed through Dispatch is stored by the controller that hands it out: it needs no hint to another
one, and no release of its own where nothing else is under way. With two lists that differ for a moment, the item takes
the longer way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def weight(live: str, url: str) -> bytes:
    """Return the controller's rank for the live (rendezvous hashing): each live prefers the controllers in an order of
    its own. A linear sum such as CRC32 will not do: of two URLs that differ in a few bits, one could win every time."""
    return hashlib.blake2b(f"{live} {url}".encode(), digest_size=8).digest()


def in_order(live: str, urls: Iterable[str]) -> list[str]:
    """Return the controllers in the order in which the live prefers them."""
    return sorted(urls, key=lambda url: weight(live, url), reverse=True)
