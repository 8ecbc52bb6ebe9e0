"""The address of a client, also behind proxies, and the limit on its connections.

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
SITE_BITS = 64  # Lower bits of an IPv6 address that are ignored: one client can have all addresses of a site.
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
        if named is None or not is_proxy(found, trusted):
            break
        found = str(named)
    return found


def is_proxy(address: str, trusted: Sequence[Network]) -> bool:
    named = parsed(address)
    return named is not None and any(named in network for network in trusted)


def site_of(address: str) -> str:
    """Return the address that counts as one client: an IPv4 address, or the site of an IPv6 address."""
    named = parsed(address)
    if isinstance(named, IPv6Address):
        return str(IPv6Address(int(named) >> SITE_BITS << SITE_BITS))
    return address if named is None else str(named)


class AddressLimit:
    """The connections of each address at one listener: at most `most`; trusted proxies may have any number."""

    def __init__(self, most: int, trusted: tuple[Network, ...] = ()) -> None:
        self._most = most
        self._trusted = trusted
        self._open: dict[str, int] = {}

    def open(self, address: str) -> str | None:
        """Count a new connection and return its site, for `close`; None if the address has too many already."""
        site = "" if is_proxy(address, self._trusted) else site_of(address)
        before = self._open.get(site, 0)
        if site and before >= self._most:
            return None
        self._open[site] = before + 1
        return site

    def close(self, site: str) -> None:
        self._open[site] -= 1
        if not self._open[site]:
            del self._open[site]


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
