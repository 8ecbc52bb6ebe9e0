"""An earlier version of the product, to run beside this one: its package, built as a wheel from `git archive`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.harness.tree import ROOT

BUILD_S = 90.0


def built_package(commit: str, folder: Path) -> Path:
    """Return a folder with the package of this commit, for PYTHONPATH. The test is skipped if this clone has it not."""
    known = subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, capture_output=True, check=False)
    if known.returncode != 0:
        pytest.skip(f"NOT TESTED: commit {commit} is not in this clone")
    source, wheels, installed = (folder / name for name in ("source", "wheels", "installed"))
    source.mkdir(parents=True)
    archive = folder / "source.tar"
    paths = ("src", "pyproject.toml", "README.md", "LICENSE")
    subprocess.run(["git", "archive", "-o", str(archive), commit, *paths], cwd=ROOT, check=True)
    shutil.unpack_archive(archive, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=BUILD_S)
    [wheel] = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    where = [sys.executable, "-c", "import dhsched; print(dhsched.__file__)"]
    found = subprocess.run(where, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed)), "processes of this commit run its package"
    return installed
