"""API keys: `dhk_<id>_<secret>`. The id is for people and logs; the store has only a hash of the whole text.

The secret has 256 random bits, so a plain SHA-256 is enough: it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple, Protocol

import msgspec

from dhsched.access.callers import ANY, ROLES, TENANT, Bounds, Caller, Role

PREFIX = "dhk_"
TEXT_MAX = 128  # Longer text is cut before it is hashed, so that a caller cannot make hashing slow.
NO_HASH = "0" * 64


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """The store's record of a key. `rate_per_s` 0 means the setting key_rate_per_s.

    `names` to `labels` bound the Workers that a key of role worker registers (`Bounds`). A machine key (`machine`) is
    for the one Worker that they describe; machine_keys.py makes it.
    """

    id: str
    hash: str
    role: Role
    tenant: str = TENANT
    names: str = ANY
    pool: str = ANY
    capacity_max: int = 0
    labels: str = ANY
    machine: bool = False
    rate_per_s: float = 0
    note: str = ""
    created_at_ms: int = 0

    @property
    def bounds(self) -> Bounds:
        if self.role != "worker":
            return Bounds()  # An admin's token of role worker registers any Worker; other roles register none.
        return Bounds(self.names, self.pool, self.capacity_max, self.labels, self.machine)

    def caller(self) -> Caller:
        return Caller(self.id, self.role, self.tenant, ROLES[self.role], self.bounds)


class NewKey(NamedTuple):
    """A new key. Its text is not stored: this is the only copy."""

    text: str
    id: str
    hash: str


def new_key(prefix: str = PREFIX) -> NewKey:
    key_id = secrets.token_hex(6)
    text = f"{prefix}{key_id}_{secrets.token_urlsafe(32)}"
    return NewKey(text, key_id, hash_of(text))


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_key(shown: str) -> bool:
    return shown.startswith(PREFIX)


def id_of(text: str) -> str:
    """Return the id in a key's text; for any other text, a string that is no key's id."""
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 else ""


class Hashed(Protocol):
    """A record with the hash of a secret text."""

    @property
    def hash(self) -> str: ...


def matches(text: str, known: Hashed | None) -> bool:
    """Return whether `text` is the text of the record. The check takes as long for a record that does not exist."""
    return hmac.compare_digest(hash_of(text[:TEXT_MAX]), known.hash if known is not None else NO_HASH)
