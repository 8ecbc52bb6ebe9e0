"""The address of a client, also behind proxies.

A proxy appends the address that called it to the header X-Forwarded-For. Anybody can send this header, so an entry
counts only if a trusted proxy appended it: the list is read from its end, for as long as the address before is that of
a trusted proxy.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aiohttp import web

from dhsched.errors import BadSetting
from dhsched.settings import listed

HEADER = "X-Forwarded-For"
HOPS_MAX = 16  # Entries before these are ignored.
Network = IPv4Network | IPv6Network


def proxies(given: str) -> tuple[Network, ...]:
    """Return the networks of a list of trusted proxies; raise BadSetting for an entry that is none."""
    try:
        return tuple(ip_network(each) for each in listed(given))
    except ValueError as error:
        raise BadSetting(
            f"setting trusted_proxies: {error}; each entry must be an address or a network, like 10.0.0.0/8"
        ) from None


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """Return the address of the client that the nearest trusted proxy names; without proxies, the peer's."""
    found = request.remote or ""
    if not trusted:
        return found
    hops = ",".join(request.headers.getall(HEADER, [])).split(",")[-HOPS_MAX:]
    for hop in reversed(hops):
        named = parsed(hop)
        if named is None or not any(parsed(found) in network for network in trusted):
            break
        found = str(named)
    return found


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address in an entry, which may have a port; None for other text."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
