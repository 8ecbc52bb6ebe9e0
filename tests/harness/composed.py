"""deploy/compose.yaml, read as compose reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.harness.containers import Container
from tests.harness.tree import ROOT

FILE = ROOT / "deploy" / "compose.yaml"


def document(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the document, with `${NAME:-default}` replaced."""

    def value(found: re.Match[str]) -> str:
        return (variables or {}).get(found[1], found[2])

    loaded: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{(\w+):-([^}]*)\}", value, FILE.read_text()))
    return loaded


def container(name: str, read: Mapping[str, Any], secrets: Path) -> Container:
    """Return one service of the document as a container. `secrets` is the folder of the secrets' files."""
    service = read["services"][name]
    mounts = {
        f"/run/secrets/{secret}": secrets / Path(read["secrets"][secret]["file"]).name
        for secret in service.get("secrets", ())
    }
    environment = dict(service.get("environment", {}))
    if service.get("hostname"):
        environment["DHSCHED_WORKER_NAME"] = service["hostname"]  # A Worker's name is its host name.
    return Container(name, service.get("command", ()), environment, mounts)
