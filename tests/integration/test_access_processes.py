"""Access as people meet it: the verbs, against processes that ask for keys and speak TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.errors import DhschedError
from dhsched.web import listener_tls
from tests.harness.fleet import until, until_so
from tests.harness.processes import start
from tests.harness.servers import empty_server


@pytest.mark.release
async def test_machine_keys_and_tls_from_the_command_line(certificate: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The first key at the store, the others through a replica; then create, push and revoke, all over TLS."""
    ca, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with empty_server("valkey") as server:
        config = tmp_path / "dhsched.toml"
        config.write_text(
            f"[shared]\nstore = '{server.address.url()}'\naccess = 'keys'\ntls_cert = '{ca}'\ntls_key = '{key}'\n"
            f"[worker]\npool = 'gpu'\ncapacity = 2\ntls_ca = '{ca}'\nkey_file = '{tmp_path / 'worker-key'}'\n"
        )
        environment = {"DHSCHED_TLS_CA": ca}

        async def dhsched(*words: str, **more: str) -> str:
            runner = CliRunner()
            result = await asyncio.to_thread(runner.invoke, cli.app, [*words], env={**environment, **more})
            if isinstance(result.exception, DhschedError):
                raise result.exception
            assert result.exit_code == 0, (words, result.output, result.exception)
            return result.stdout

        admin = await dhsched("key", "create", "--role", "admin", "--store", server.address.url())
        roles = [
            await start("run", role, "--config", str(config), "--port", "0", "--log-level", "error")
            for role in ("dispatch", "infer")
        ]
        try:
            await until(lambda: all(each.url for each in roles), "both processes")
            dispatch, infer = (each.url for each in roles)
            assert dispatch.startswith("https://") and infer.startswith("https://")
            environment |= {"DHSCHED_URL": dispatch, "DHSCHED_INFER": infer}
            with pytest.raises(DhschedError, match=r"no key .* DHSCHED_KEY .*UNAUTHORIZED"):
                await dhsched("live", "ls")
            environment["DHSCHED_KEY"] = admin.strip()
            made = json.loads(await dhsched("key", "create", "--role", "app", "--tenant", "acme", "--json"))
            worker_key = await dhsched("key", "create", "--role", "worker", "--names", "gpu-*", "--pool", "gpu")
            (tmp_path / "worker-key").write_text(worker_key)
            assert made["record"]["key_id"] in await dhsched("key", "ls")
            assert len(json.loads(await dhsched("key", "ls", "--store", server.address.url(), "--json"))["keys"]) == 3
            await dhsched("pool", "put", "gpu")
            await dhsched("digital-id", "put", "anna", "--pool", "gpu")
            given = ("--config", str(config), "--dispatch", dispatch, "--name", "gpu-1", "--log-level", "error")
            roles.append(await start("run", "worker", "--runtime", "echo", "--locks", str(tmp_path), *given))
            as_app = {"DHSCHED_KEY": made["key"]}
            await dhsched("live", "create", "anna", "--id", "L", "--wait", "30", **as_app)
            await dhsched("live", "push", "L", "hello", **as_app)
            await until(lambda: any("hello" in line for line in roles[-1].printed), "the item at the Worker")
            with pytest.raises(DhschedError, match="NOT_FOUND"):
                await dhsched("live", "get", "L")
            assert json.loads(await dhsched("live", "get", "L", "--json", DHSCHED_TENANT="acme"))["acked"] <= 1
            minted = json.loads(await dhsched("key", "mint", "--ttl", "60", "--role", "metrics", "--json"))
            assert await scraped(dispatch, ca, minted["token"])
            assert json.loads(await dhsched("key", "rotate", "--json"))["kid"] == "2"
            await dhsched("key", "revoke", made["record"]["key_id"])
            with pytest.raises(DhschedError, match="check that the key is whole and has not been revoked"):
                await dhsched("live", "ls", **as_app)
            # The machine gpu-2 joins with a token and runs with its own key, until its name is banned.
            token = await dhsched("worker", "invite", "gpu-2", "--pool", "gpu", "--capacity", "2")
            file = str(tmp_path / "machine-key")
            await dhsched("worker", "join", token.strip(), "--key-file", file, DHSCHED_KEY="")
            own = (*given[:5], "gpu-2", *given[6:], "--key-file", file)
            roles.append(await start("run", "worker", "--runtime", "echo", "--locks", str(tmp_path), *own))

            async def names() -> list[str]:
                return [
                    row["worker"].partition("#")[0]
                    for row in json.loads(await dhsched("worker", "ls", "--json"))["workers"]
                ]

            await until_so(names, lambda found: sorted(found) == ["gpu-1", "gpu-2"], "both Workers")
            await dhsched("worker", "ban", "gpu-2")
            assert await roles[-1].ended() == 1, "it is refused and exits"
            assert await names() == ["gpu-1"]
        finally:
            for each in roles:
                await each.stop()


async def scraped(url: str, ca: str, token: str) -> bool:
    tls = ssl.create_default_context(cafile=ca)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http.get(f"{url}/metrics", headers=headers)
        async with http.get(f"{url}/metrics", headers=headers, ssl=tls) as response:
            return response.status == 200 and "dhsched_requests" in await response.text()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    from dhsched.errors import BadSetting
    from dhsched.settings import DispatchSettings

    (tmp_path / "cert.pem").write_text("none")
    for cert in ("cert.pem", "nowhere.pem"):
        file = str(tmp_path / cert)
        with pytest.raises(BadSetting, match="check tls_cert and tls_key"):
            listener_tls(DispatchSettings(tls_cert=file, tls_key=file))
