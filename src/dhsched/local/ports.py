"""Ports on the loopback address."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 30_000)
"""Ports below the range that the kernel uses for outgoing connections: a free port found here stays free."""
BUS_OFFSET = 10_000  # A store in cluster mode also listens on its port plus this number.
TRIES = 200  # After this many taken ports, `free_ports` raises an error.


def free_port() -> int:
    """Return a free port whose cluster bus port is free too."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return several different ports like `free_port`."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, TRIES + count):
        if is_free(port) and is_free(port + BUS_OFFSET):
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"{TRIES + count - len(found)} of {TRIES + count} ports are taken")


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
