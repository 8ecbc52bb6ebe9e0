"""deploy/compose.yaml: roles know every variable and flag, secrets are files, and Workers have time to drain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import composed
from tests.harness.containers import settings_of_container
from tests.harness.tree import ROOT

READ = composed.document()
ROLES = sorted(name for name, service in READ["services"].items() if service.get("command", [""])[0] == "run")


def settings(name: str) -> Any:
    return settings_of_container(composed.container(name, READ, Path("/run/secrets")))


def test_there_are_two_of_what_must_not_be_one() -> None:
    roles = [READ["services"][name]["command"][1] for name in ROLES]
    assert sorted(roles) == ["dispatch", "dispatch", "infer", "infer", "room", "worker", "worker"]
    assert {*READ["services"]} == {*ROLES, "store", "cli"}


@pytest.mark.parametrize("name", ROLES)
def test_a_role_knows_every_variable_and_flag(name: str) -> None:
    found, service = settings(name), READ["services"][name]
    probe = service["healthcheck"]["test"][-1]
    port = getattr(found, "port", None) or found.metrics_port
    assert f"urlopen('http://127.0.0.1:{port}/healthz')" in probe
    assert service["read_only"] and service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("name", ROLES)
def test_a_role_has_longer_to_stop_than_it_takes(name: str) -> None:
    found = settings(name)
    takes_s = found.drain_s + found.teardown_s if hasattr(found, "teardown_s") else found.stop_s
    assert int(READ["services"][name]["stop_grace_period"].removesuffix("s")) > takes_s


def test_what_is_published_is_published_on_loopback() -> None:
    ports = [port for service in READ["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 3 and all(port.startswith("127.0.0.1:") for port in ports)


def test_every_secret_is_a_file_that_git_ignores() -> None:
    used = {secret for service in READ["services"].values() for secret in service.get("secrets", ())}
    assert used == {*READ["secrets"]}
    assert all(secret["file"].startswith("./secrets/") for secret in READ["secrets"].values())
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_url_names_a_service_and_its_port() -> None:
    ports = {name: getattr(settings(name), "port", 0) for name in ROLES}
    for name in ROLES:
        for variable, value in READ["services"][name]["environment"].items():
            for url in value.split(",") if "http://" in value else ():
                host, _, port = url.removeprefix("http://").partition(":")
                assert ports[host] == int(port), f"{name}: {variable}"
