"""Where a caller finds its API key, and whom it trusts.

A key is found, first to last: given, in DHSCHED_KEY, in the file that DHSCHED_KEY_FILE names, and in the key file for
the server's address (access/development.py). A Worker or a room is given its own in its settings; without one, the
last place is left to it. http.py makes tokens of it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from dhsched.access.callers import Role
from dhsched.access.key_file import KeyFile
from dhsched.access.minting import MintToken
from dhsched.errors import BadSetting
from dhsched.settings import read_key

KEY = "DHSCHED_KEY"
KEY_FILE = "DHSCHED_KEY_FILE"
TENANT = "DHSCHED_TENANT"
TLS_CA = "DHSCHED_TLS_CA"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An API key: `given`, or what `find` finds for a server's address. Its tokens allow what `asks` says."""

    given: str = ""
    find: Callable[[str], str] = lambda _: ""
    asks: MintToken = field(default_factory=MintToken)

    def key(self, url: str) -> str:
        """The key to use at this server now; empty if there is none."""
        return self.given or self.find(url)


def given_or_found(key: str | None) -> Credentials:
    """Of a person or an application: the key that is given; None looks for one."""
    return Credentials(find=find_key) if key is None else Credentials(key)


def own_key(key: str, role: Role, tenant: str | msgspec.UnsetType = msgspec.UNSET) -> Credentials:
    """Of a Worker or a room. Without a key of its own it uses the development key, for no more than that role."""
    if key:
        return Credentials(key)
    return Credentials(find=lambda url: KeyFile().get(url), asks=MintToken(role=role, tenant=tenant))


def find_key(url: str, environment: Mapping[str, str] | None = None) -> str:
    """The key to use at this server; empty if there is none."""
    environment = os.environ if environment is None else environment
    if environment.get(KEY):
        return environment[KEY].strip()
    if environment.get(KEY_FILE):
        return read_key(environment[KEY_FILE], KEY_FILE)
    return KeyFile(environment).get(url)


def client_tls(ca: str) -> ssl.SSLContext:
    """TLS of a client, trusting this authority's PEM file beside the usual ones."""
    context = ssl.create_default_context()
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise BadSetting(f"cannot use the authority {ca} ({error}); check tls_ca: it is a PEM file") from None
    return context
