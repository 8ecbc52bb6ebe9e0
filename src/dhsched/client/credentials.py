"""Where a caller finds its API key, and which TLS authorities it trusts.

A key is searched in this order: given, in DHSCHED_KEY, in the file that DHSCHED_KEY_FILE names, and in the key file for
the server's address (access/development.py). A Worker or a room gets its own key in its settings; without one, only
the last place is searched. calls.py mints tokens with the key.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dhsched.access.callers import Role
from dhsched.access.key_file import KeyFile
from dhsched.access.minting import MintToken
from dhsched.errors import BadSetting

KEY = "DHSCHED_KEY"
KEY_FILE = "DHSCHED_KEY_FILE"
TENANT = "DHSCHED_TENANT"
TLS_CA = "DHSCHED_TLS_CA"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An API key: `given`, or what `find` returns for a server's address. Its tokens have the rights in `asks`."""

    given: str = ""
    find: Callable[[str], str] = lambda _: ""
    asks: MintToken = field(default_factory=MintToken)

    def key(self, url: str) -> str:
        """Return the key to use at this server now; empty if there is none."""
        return self.given or self.find(url)


def given_or_found(key: str | None) -> Credentials:
    """Return the credentials of a person or an application: `key`, or for None the key that `find_key` finds."""
    return Credentials(find=find_key) if key is None else Credentials(key)


def own_key(key: str, role: Role, tenant: str | msgspec.UnsetType = msgspec.UNSET) -> Credentials:
    """Return the credentials of a Worker or a room: its own key, else the development key with only that role."""
    if key:
        return Credentials(key)
    return Credentials(find=lambda url: KeyFile().get(url), asks=MintToken(role=role, tenant=tenant))


def find_key(url: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the key to use at this server; empty if there is none."""
    environment = os.environ if environment is None else environment
    if environment.get(KEY):
        return environment[KEY].strip()
    if environment.get(KEY_FILE):
        from dhsched.settings import read_secret  # Late: most calls find their key elsewhere.

        return read_secret(Path(environment[KEY_FILE]), KEY_FILE)
    return KeyFile(environment).get(url)


def client_tls(ca: str) -> ssl.SSLContext:
    """Return the TLS context of a client, which trusts the PEM file `ca` beside the usual authorities."""
    context = ssl.create_default_context()
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise BadSetting(f"cannot use the authority {ca} ({error}); set tls_ca to a PEM file") from None
    return context
