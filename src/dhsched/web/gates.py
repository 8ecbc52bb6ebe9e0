"""The gate of a replica, opened as its settings say; and the TLS of its listener."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from dhsched.access.gate import Gate
from dhsched.access.ring import KeyRing
from dhsched.errors import BadSetting
from dhsched.tokens import Tokens

log = structlog.get_logger(__name__)


class WithTls(Protocol):
    """What is needed of the settings of a role that listens."""

    @property
    def tls_cert(self) -> str: ...
    @property
    def tls_key(self) -> str: ...


class Listening(WithTls, Protocol):
    """And of one that has a gate."""

    @property
    def access(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def key_rate_per_s(self) -> float: ...


@asynccontextmanager
async def open_gate(settings: Listening, ring: KeyRing) -> AsyncIterator[Gate | None]:
    """The gate, which keeps up with the key ring while it is open; None where access is open, and the log says so."""
    if settings.access == "open":
        log.warning("access is open: whoever reaches this address may do anything", host=settings.host)
        yield None
        return
    tokens = Tokens(ring)

    async def read_boot(token: str) -> str:
        return (await tokens.read(token)).boot.worker

    if not any(key.role == "admin" for key in ring.api_keys.values()):
        log.warning("there is no admin key yet: make one with `dhsched key create --role admin --store URL`")
    gate = Gate(ring, rate_per_s=settings.key_rate_per_s, read_boot=read_boot)
    minding = asyncio.create_task(ring.mind(), name="key ring")
    try:
        yield gate
    finally:
        minding.cancel()
        await asyncio.gather(minding, return_exceptions=True)


def listener_tls(settings: WithTls) -> ssl.SSLContext | None:
    """TLS of the listener, or None without a certificate."""
    if not settings.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(
            f"cannot use the certificate {settings.tls_cert} with the key {settings.tls_key} "
            f"({error.strerror or error}); check tls_cert and tls_key: both are PEM files, and the key fits"
        ) from None
    return context
