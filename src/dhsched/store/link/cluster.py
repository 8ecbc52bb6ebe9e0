"""Cluster mode, as far as one cell needs it: all its keys share a hash tag, so one slot, so one node.

Pure functions over the server's replies; the link sends the commands and connects.
"""

from binascii import crc_hqx
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SLOTS = 16_384


@dataclass(frozen=True, slots=True)
class Node:
    """A node as another node names it. An empty host stands for the host that was asked."""

    id: str
    host: str
    port: int


def key_slot(key: str) -> int:
    """Return the slot of `key`: CRC16 of its hash tag, or of the whole key if it has none."""
    raw = key.encode()
    if (start := raw.find(b"{")) >= 0 and (end := raw.find(b"}", start + 1)) > start + 1:
        raw = raw[start + 1 : end]
    # crc_hqx is CRC16-XMODEM, as the cluster specification requires.
    return crc_hqx(raw, 0) % SLOTS


def slot_owner(slots: Sequence[Any], slot: int) -> Node | None:
    """Return the node that serves `slot` according to a CLUSTER SLOTS reply; None if no node does."""
    for first, last, primary, *_ in slots:
        if first <= slot <= last:
            return _node(primary)
    return None


def all_nodes(slots: Sequence[Any]) -> list[Node]:
    """Return every node in a CLUSTER SLOTS reply, primaries and replicas: each can say where a slot went."""
    return list({node.id: node for _first, _last, *nodes in slots for node in map(_node, nodes)}.values())


def moved_to(reply: str) -> Node:
    """Return the node in `MOVED 3999 host:port`."""
    _moved, _slot, where = reply.split(" ")[:3]
    host, _, port = where.rpartition(":")
    return Node("", host.strip("[]"), int(port))


def is_moving(reply: str) -> bool:
    """Return whether an error reply says that the slot is being moved to another node and that the call did not run.

    A key that this node does not hold may be on the other one already: a command on it is refused with ASK, or TRYAGAIN
    where it names several keys, and a script with the sentence below, at its first such key. Earlier writes of a script
    stay; so every script of ours looks, before anything else, for a key that never exists (lua/lib/base.lua).
    """
    return reply.startswith(("ASK ", "TRYAGAIN ")) or "access a non local key in a cluster node" in reply


def _node(entry: Sequence[Any]) -> Node:
    host, port, id_ = entry[:3]
    # A node that does not know its own name sends NULL, "" or "?".
    text = host.decode() if host else ""
    return Node(id_.decode(), "" if text == "?" else text, int(port))
