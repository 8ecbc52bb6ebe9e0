"""The npm package: its version is the product's, its lock names no server, its component imports only neighbours."""

from __future__ import annotations

import json
import re

from dhsched import __version__
from tests.harness.tree import PACKAGE, ROOT

FOLDER = ROOT / "clients" / "typescript"


def test_the_version_is_the_product_s() -> None:
    package, lock = (json.loads((FOLDER / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert package["version"] == lock["version"] == lock["packages"][""]["version"] == __version__
    assert "dependencies" not in package, "users install the client alone"


def test_the_lock_has_hashes_and_names_no_server() -> None:
    packages = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    assert len(packages) > 1
    for name, locked in packages.items():
        assert "resolved" not in locked, f"{name}: .npmrc has omit-lockfile-registry-resolved; run npm install there"
        assert not name or "integrity" in locked, name


def test_the_component_imports_only_what_stands_beside_it() -> None:
    """Pages of other origins load these files, so an address like /page/x.js would be looked for there."""
    page = PACKAGE / "room" / "page"
    todo, found = ["dhsched-live.js"], set[str]()
    while todo:
        name = todo.pop()
        found.add(name)
        imported = re.findall(r'^(?:import|export) [^;]*"([^"]+)";$', (page / name).read_text(), re.MULTILINE)
        assert [each for each in imported if not each.startswith("./")] == [], name
        todo += [each.removeprefix("./") for each in imported if each.removeprefix("./") not in found]
    assert {"whep.js", "captions.js", "room-live.js"} <= found and "live.js" not in found
