"""Ports on the loopback address."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 30_000)
"""Below the range from which the kernel takes ports for outgoing connections: a port found here stays free."""
BUS_OFFSET = 10_000  # A store in cluster mode listens on its port plus this one too.
TRIES = 200


def free_port() -> int:
    """Return a port that is free, and so is the port that a cluster bus would take beside it."""
    for port in random.SystemRandom().sample(PORTS, TRIES):
        if is_free(port) and is_free(port + BUS_OFFSET):
            return port
    raise RuntimeError(f"{TRIES} ports in a row are taken")


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
