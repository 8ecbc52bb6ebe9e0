"""TLS: it works, and what does not fit is named. Certificates are made on the spot with openssl."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dhsched.errors import BadAddress, ServerNotStarted, StoreError, StoreIncompatible
from dhsched.local.ports import free_port
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link, LinkSettings
from tests.harness.servers import running_server

SHORT = LinkSettings(connect_s=0.5)


@pytest.fixture
async def tls_server(kind: str, certificate: Path) -> AsyncIterator[Address]:
    port, cert, key = free_port(), f"{certificate}/cert.pem", f"{certificate}/key.pem"
    files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no"]
    try:
        async with running_server(kind, extra=["--tls-port", str(port), *files]):
            yield Address(scheme="rediss", host="127.0.0.1", port=port, ca=cert)
    except ServerNotStarted as error:
        pytest.skip(f"NOT TESTED: TLS with {kind}, whose binary is built without it ({str(error).splitlines()[-1]})")


async def refusal(address: Address) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await Link.open(address, {}, SHORT)
    return caught.value


async def test_a_verified_connection(tls_server: Address) -> None:
    async with await Link.open(tls_server, {"one": b"return 1"}) as link:
        assert await link.run("one", []) == 1


async def test_an_unknown_authority_is_refused(tls_server: Address) -> None:
    error = await refusal(replace(tls_server, ca=None))
    assert isinstance(error, StoreIncompatible) and "?ca=" in str(error)


async def test_plain_text_to_a_tls_port(tls_server: Address) -> None:
    assert "rediss://" in str(await refusal(Address(host="127.0.0.1", port=tls_server.port)))


async def test_tls_to_a_plain_port(kind: str, certificate: Path) -> None:
    async with running_server(kind, port=free_port()) as server:
        error = await refusal(replace(server.tcp_address, scheme="rediss", ca=f"{certificate}/cert.pem"))
    assert "redis:// if it has no TLS" in str(error)


async def test_a_missing_certificate_file(certificate: Path) -> None:
    with pytest.raises(BadAddress, match="check ca, cert and key"):
        await Link.open(Address(scheme="rediss", ca=f"{certificate}/nowhere.pem"), {}, SHORT)
