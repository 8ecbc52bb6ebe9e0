"""Contexts: which deployment a verb calls, with which key, and who else can read that key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dhsched import cli
from dhsched.cli.context_file import path_of_contexts
from dhsched.errors import BadValue, DhschedError
from tests.harness.keyed import keyed
from tests.harness.servers import empty_server

DEAD = "http://127.0.0.1:1"  # Nobody listens there, and only root could.
KEY = "dhk_0123456789ab_secret"


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


def dhsched(*words: str, **env: str) -> Any:
    result = CliRunner().invoke(cli.app, [*words], env=env)
    if isinstance(result.exception, DhschedError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.output) if "--json" in words else result.output


def called(*words: str, **env: str) -> str:
    """The address that a verb tried to reach."""
    with pytest.raises(DhschedError, match="cannot reach") as error:
        dhsched(*words, **env)
    return str(error.value).partition(" at ")[2].partition(" ")[0]


def test_a_flag_wins_over_the_environment_over_the_context_over_the_default() -> None:
    dhsched("context", "set", "prod", "--url", "http://127.0.0.1:2", "--infer", "http://127.0.0.1:3")
    dhsched("context", "set", "other", "--url", "http://127.0.0.1:4")
    assert called("live", "ls", DHSCHED_URL=DEAD) == DEAD
    dhsched("context", "use", "prod")
    assert called("live", "ls") == "http://127.0.0.1:2"
    assert called("why", "L") == "http://127.0.0.1:2", "a verb without a family"
    assert called("live", "push", "L", "words") == "http://127.0.0.1:3"
    assert called("live", "ls", DHSCHED_URL=DEAD) == DEAD
    assert called("live", "ls", "--url", "http://127.0.0.1:5", DHSCHED_URL=DEAD) == "http://127.0.0.1:5"
    assert called("--context", "other", "live", "ls") == "http://127.0.0.1:4"
    assert called("live", "ls", DHSCHED_CONTEXT="other") == "http://127.0.0.1:4"
    with pytest.raises(BadValue, match="--context other was given, but DHSCHED_URL is set"):
        dhsched("--context", "other", "live", "ls", DHSCHED_URL=DEAD)
    assert "default: http://127.0.0.1:2" in dhsched("live", "ls", "--help"), "the help shows what would be called"


def test_contexts_are_listed_changed_and_removed_without_showing_a_key() -> None:
    assert dhsched("context", "ls", "--json") == {"contexts": []}
    made = dhsched("context", "set", "prod", "--url", DEAD, "--key", KEY, "--tenant", "acme", "--json")
    assert (made["url"], made["tenant"], made["current"]) == (DEAD, "acme", False)
    dhsched("context", "use", "prod")
    dhsched("context", "set", "prod", "--tenant", "")
    [row] = dhsched("context", "ls", "--json")["contexts"]
    assert row["current"] and row["tenant"] == "" and str(path_of_contexts()) in row["key"]
    assert KEY not in dhsched("context", "ls") + json.dumps(row)
    assert path_of_contexts().stat().st_mode & 0o777 == 0o600
    for words, said in (
        (("use", "prd"), r"no context prd \(known are prod\)"),
        (("rm", "prd"), "no context prd"),
        (("set", "new"), "give --url"),
        (("set", "new", "--url", "ftp://x"), "ftp"),
        (("set", "prod", "--key", "a", "--key-file", __file__), "both given"),
        (("set", "prod", "--ca", "/no/such.pem"), "no such file"),
    ):
        with pytest.raises(DhschedError, match=said):
            dhsched("context", *words)
    dhsched("context", "rm", "prod")
    assert json.loads(path_of_contexts().read_text()) == {"current": "", "contexts": {}}


def test_a_file_that_others_can_read_or_that_is_broken_is_refused() -> None:
    dhsched("context", "set", "prod", "--url", DEAD)
    path_of_contexts().chmod(0o644)
    with pytest.raises(DhschedError, match="chmod 600"):
        dhsched("live", "ls")
    path_of_contexts().chmod(0o600)
    for broken in ("{", "[]", '{"current": "", "contexts": {"a": {"uri": 1}}}'):
        path_of_contexts().write_text(broken)
        with pytest.raises(DhschedError, match="correct or remove the file"):
            dhsched("context", "ls")


async def test_the_key_of_a_context_goes_only_to_the_addresses_of_that_context(tmp_path: Path) -> None:
    async with empty_server("valkey") as server, keyed(server.address) as k:
        url, infer = (f"http://127.0.0.1:{k.clients[role].port}" for role in ("dispatch", "infer"))
        key, file = await k.key("admin"), tmp_path / "key"
        file.write_text(key)

        async def run(*words: str, **env: str) -> Result:
            return await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env)

        for given in (("--key", key), ("--key-file", str(file))):
            assert (await run("context", "set", "prod", "--url", url, *given)).exit_code == 0
            assert (await run("--context", "prod", "pool", "ls")).exit_code == 0
            assert (await run("pool", "ls", "--url", url)).exit_code == 1, "no context is in use yet"
            assert (await run("--context", "prod", "live", "push", "L", "words", "--infer", infer)).exit_code == 1
            assert "needs a key" in str(
                (await run("--context", "prod", "live", "push", "L", "x", "--infer", infer)).exception
            )
            assert (await run("--context", "prod", "key", "mint")).output.count(".") == 2
        await run("context", "set", "prod", "--infer", infer)
        said = str((await run("--context", "prod", "live", "push", "L", "words")).exception)
        assert "NOT_FOUND" in said, "the key is taken at the controller, too, once the context names it"
        wrong = await run("pool", "ls", DHSCHED_CONTEXT="prod", DHSCHED_KEY=KEY)
        assert "0123456789ab" in str(wrong.exception), "the key of the environment wins"
