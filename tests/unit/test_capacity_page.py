"""docs/guides/capacity.md: the fleet of its example holds its lives, and the one with a Worker less does not."""

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dhsched.cli import app
from tests.harness.tree import document


def simulated(plan: str, folder: Path) -> Any:
    file = folder / "fleet.yaml"
    file.write_text(plan)
    done = CliRunner().invoke(app, ["simulate", str(file), "--policy", "emptiest", "--seeds", "3", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_example_holds_its_lives_and_no_worker_less(tmp_path: Path) -> None:
    page = document("docs/guides/capacity.md")
    [plan] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    [lives, capacity, lost, growth] = (150, 12, 1, 10)
    workers = -(-(lives + lost * capacity + growth) // capacity)
    assert f"so {workers} Workers" in page and f"count: {workers - lost}," in plan
    [row] = simulated(plan, tmp_path)["rows"]
    assert row["failed_creates"] == 0
    fewer = plan.replace(f"count: {workers - lost},", f"count: {workers - lost - 1},")
    [row] = simulated(fewer, tmp_path)["rows"]
    assert row["failed_creates"] == 160 - 13 * capacity
