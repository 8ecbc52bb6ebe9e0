"""Connects a Wire to an address by TCP, TLS or a unix socket, or raises one clear error."""

import asyncio
import socket
import ssl

from dhsched.errors import BadAddress, StoreIncompatible, StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.link.wire import Wire

# A connection that only receives pushes sends nothing, so only keepalive notices that its peer is gone.
KEEPALIVE_IDLE_S = 10
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3  # After this many probes without an answer the connection is lost.


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Return the TLS context of an address, or None without TLS. Called once per link, because it reads files."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.key)
    except (OSError, ssl.SSLError) as error:
        raise BadAddress(
            f"cannot use the TLS files of store {address.redacted()} ({error}): check ca, cert and key"
        ) from error
    return context


async def dial(address: Address, tls: ssl.SSLContext | None, *, write_buffer_bytes: int, silent_s: float) -> Wire:
    """Connect. The kernel closes the connection after `silent_s` without an acknowledgement of sent bytes."""
    loop = asyncio.get_running_loop()
    shown = address.redacted()
    try:
        if address.path is not None:
            transport, wire = await loop.create_unix_connection(lambda: Wire(shown), address.path)
        else:
            transport, wire = await loop.create_connection(lambda: Wire(shown), address.host, address.port, ssl=tls)
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason or str(error)
        raise StoreIncompatible(
            f"no TLS with store {shown} ({why}): give its authority's file as ?ca=..., or redis:// if it has no TLS"
        ) from error
    except OSError as error:
        raise StoreUnavailable(
            f"cannot reach store {shown} ({error.strerror or error}): check that it runs and that the address is right",
            unknown=False,
        ) from error
    transport.set_write_buffer_limits(high=write_buffer_bytes)
    if address.path is None:
        tune(transport.get_extra_info("socket"), silent_s)
    return wire


def tune(sock: socket.socket, silent_s: float) -> None:
    """Send without delay, and let the kernel notice a peer that is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Linux has all of these; elsewhere only the link's rule about an overdue oldest call applies.
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", int(silent_s * 1000)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
