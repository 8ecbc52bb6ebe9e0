"""The image without a build: what the Containerfile copies, runs and sets exists, and its scripts are scripts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch

import pytest

from dhsched.cli.config import kinds
from dhsched.settings import environment_key, settings_of
from tests.harness.tree import ROOT

TEXT = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
LINES = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
BUILD = (ROOT / "deploy" / "image" / "build").read_text()
TRY = (ROOT / "deploy" / "image" / "try").read_text()


def last(instruction: str) -> str:
    return [line.partition(" ")[2] for line in LINES if line.startswith(f"{instruction} ")][-1]


def test_everything_that_is_copied_is_there_or_made_by_the_build() -> None:
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    sources = [
        word for line in LINES if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert len(sources) == 2
    assert [*filter(lambda line: line.startswith("!"), ignored)] == [f"!{source}" for source in sources]
    for source in sources:
        assert (ROOT / source).exists() or f"={source}\n" in BUILD, source


def test_the_image_installs_only_what_the_lock_pins() -> None:
    installs = re.findall(r"pip install (.*?)(?:&&|$)", TEXT, re.MULTILINE)
    assert len(installs) == 2 and all("--no-index" in each and "--no-deps" in each for each in installs)
    assert "--require-hashes" in installs[0] and "--require-hashes" in BUILD
    lock = (ROOT / "requirements" / "run.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for wanted in (*project["dependencies"], *extras["avatar"], *extras["embedded"]):
        name = re.split(r"[\[<>=; ]", wanted)[0].lower()
        assert re.search(rf"^{name}==", lock, re.MULTILINE), f"{name} is not in the image"


def test_the_entry_point_is_the_command_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert json.loads(last("ENTRYPOINT")) == [*project["scripts"]] == ["dhsched"]


def test_the_process_is_not_root_and_its_writable_places_are_volumes() -> None:
    user = last("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    volumes, variables = json.loads(last("VOLUME")), dict(re.findall(r"(\w+)=(\S+)", last("ENV")))
    for name in ("HOME", "XDG_STATE_HOME", "DHSCHED_WORKER_LOCK_FOLDER"):
        assert any(fnmatch(variables[name], f"{volume}*") for volume in volumes), name
    known = {environment_key(kind, each.name) for kind in kinds().values() for each in settings_of(kind)}
    assert {name for name in variables if name.startswith("DHSCHED")} <= known
    assert all(f'"$root{volume}"' in TRY for volume in volumes), "deploy/image/try mounts other places"


@pytest.mark.parametrize("name", ["build", "try"])
def test_the_scripts_are_scripts(name: str) -> None:
    script = ROOT / "deploy" / "image" / name
    assert script.stat().st_mode & 0o111, "executable"
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-n", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_program_that_the_build_runs_is_named_to_its_user() -> None:
    page = (ROOT / "docs" / "guides" / "deploy-compose.md").read_text()
    for program in ("buildah", "debootstrap"):
        assert re.search(rf"^\s*(?:\w+=\$\()?{program} ", BUILD, re.MULTILINE), program
        assert f"`{program}`" in page
