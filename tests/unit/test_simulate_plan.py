"""`dhsched simulate`: plans that are refused, and what comes out of those that are not."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched.cli import app
from dhsched.errors import BadValue
from dhsched.simulate import plan_of, read_plan, workload_of

PLAN = """
pools:
  - {name: big}
  - {name: small, priority: 1}
workers:
  - {pool: big, count: 4, capacity: 50, load: [0, 8]}
  - {pool: small, count: 8, capacity: 20}
digital_ids:
  - {name: anna, pools: [{pool: big}, {pool: small, tier: 1}], weight: 3}
  - {name: ben, pools: [{pool: small}]}
creates: 300
placements_per_snapshot: [10, 100]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(PLAN)
    return path


def test_policies_side_by_side(plan: Path, tmp_path: Path) -> None:
    arguments = ["simulate", str(plan), "--policy", "bottom-tier", "--policy", "strict-min", "--seeds", "2"]
    result = CliRunner().invoke(app, [*arguments, "--json", "--plot", str(tmp_path / "spread.png")])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [(row["policy"], row["placements_per_snapshot"]) for row in rows] == [
        ("bottom-tier", 10),
        ("strict-min", 10),
        ("bottom-tier", 100),
        ("strict-min", 100),
    ]
    ours, strict = rows[2], rows[3]
    assert ours["spread"] < strict["spread"] and ours["failed_creates"] == 0
    assert (tmp_path / "spread.png").read_bytes().startswith(b"\x89PNG")
    said = CliRunner().invoke(app, arguments).stdout
    assert "bottom-tier" in said and "SNAPSHOT" in said


def test_rows_say_which_policy_is_the_default_and_how_even_each_pool_is(plan: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", str(plan), "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert {row["policy"] for row in rows if row["default"]} == {"emptiest"}
    for row in rows:
        assert set(row["pools"]) == {"big", "small"} and isinstance(row["spread"], (int, float))
        assert max(pool["spread"] for pool in row["pools"].values()) <= row["spread"]
        if row["default"]:
            assert all(pool["spread"] <= 1 for pool in row["pools"].values())


def test_the_same_seed_is_the_same_workload(plan: Path) -> None:
    read = read_plan(plan)
    assert workload_of(read, 1) == workload_of(read, 1) != workload_of(read, 2)
    assert {worker.pool for worker in workload_of(read, 1).workers} == {"big", "small"}


GOOD: dict[str, Any] = {
    "workers": [{"pool": "a", "capacity": 4}],
    "digital_ids": [{"name": "x", "pools": [{"pool": "a"}]}],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"worker": []}, "unknown field `worker`"),
        ({"workers": []}, "length >= 1"),
        ({"workers": [{"pool": "a", "capacity": 0}]}, "capacity"),
        ({"workers": [{"pool": "a", "capacity": 4, "load": [3, 5]}]}, "load 3 to 5 does not fit capacity 4"),
        ({"workers": [{"pool": "a", "capacity": 4, "count": 20_000}] * 2}, "40000 Workers"),
        ({"digital_ids": [{"name": "x", "pools": [{"pool": "b"}]}]}, "names Pool b, which is not in the plan"),
        ({"replica_weights": [1]}, "replica_weights needs 4 numbers"),
        ({"pools": [{"name": "a"}, {"name": "a"}]}, "listed twice"),
        ({"placements_per_snapshot": []}, "placements_per_snapshot"),
    ],
)
def test_a_bad_plan_says_what_is_wrong(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue, match="plan here") as caught:
        plan_of({**GOOD, **change}, "here")
    assert said in str(caught.value)


def test_a_plan_that_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(BadValue, match=r"bad.yaml is not YAML"):
        read_plan(tmp_path / "bad.yaml")
    with pytest.raises(BadValue, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.yaml")
    for arguments in (["simulate"], ["simulate", "x.yaml", "--running"]):
        assert "name a plan file" in str(CliRunner().invoke(app, arguments).exception)
