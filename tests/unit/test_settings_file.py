"""Settings from a file: under the environment and flags, over the defaults; what does not exist is named."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.errors import BadSetting
from dhsched.infer.settings import InferSettings
from dhsched.settings import DispatchSettings, effective
from dhsched.worker.settings import WorkerSettings

FILE = """
[shared]
store = "redis://:hunter2@store:6379"
cell = "blue"

[dispatch]
port = 7500
wait_max_s = 30
cell = "green"

[worker]
pool = "gpu"
capacity = 8
dispatch = ["http://a:7400", "http://b:7400"]
lock_folder = "/var/lock/dhsched"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dhsched.toml"
    path.write_text(FILE)
    return path


def test_flag_over_environment_over_file_over_default(file: Path) -> None:
    environment = {"DHSCHED_CONFIG": str(file), "DHSCHED_DISPATCH_WAIT_MAX_S": "20"}
    found = effective(DispatchSettings, {"name": "d9"}, environment)
    settings, sources = found.settings, found.sources
    assert (settings.port, settings.wait_max_s, settings.name, settings.host) == (7500, 20, "d9", "127.0.0.1")
    assert sources["port"] == f"file {file} [dispatch]"
    assert sources["store"] == f"file {file} [shared]"
    assert (settings.cell, sources["cell"]) == ("green", f"file {file} [dispatch]"), "its own section wins"
    assert sources["wait_max_s"] == "environment DHSCHED_DISPATCH_WAIT_MAX_S"
    assert (sources["name"], sources["host"]) == ("flag --name", "default")
    assert effective(InferSettings, {"config": file}, {}).settings.cell == "blue"


def test_a_worker_comes_from_a_file_too(file: Path) -> None:
    settings = effective(WorkerSettings, {"config": str(file), "capacity": 9}, {}).settings
    assert (settings.pool, settings.capacity, settings.lock_folder) == ("gpu", 9, Path("/var/lock/dhsched"))
    assert settings.dispatch == ("http://a:7400", "http://b:7400")
    assert effective(
        WorkerSettings, {"config": str(file)}, {"DHSCHED_URL": "http://x, http://y"}
    ).settings.dispatch == (
        "http://x",
        "http://y",
    )
    with pytest.raises(BadSetting, match=r"pool is not given.*--pool.*DHSCHED_WORKER_POOL.*\[worker\]"):
        effective(WorkerSettings, {}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[dispatch]\nprot = 1", r"\[dispatch\] has no setting prot; did you mean port\?"),
        ("[shared]\nport = 1", r"\[shared\] has no setting port"),
        ("[dispach]\nport = 1", r"no section \[dispach\]; did you mean dispatch\?"),
        ("port = 1", r"no section \[port\]"),
        ("dispatch = 1", "dispatch must be a section"),
        ("[dispatch]\nport = 70000", r"setting port \(file .*\[dispatch\]\) is 70000; it must be a whole number"),
        ("[dispatch]\nport = '7400'", r"setting port .* is '7400'"),
        ("[dispatch]\nport = true", r"setting port .* is True"),
        ("[shared]\nlog_level = 'loud'", r"setting log_level \(file .*\[shared\]\) is 'loud'; it must be one of debug"),
        ("[shared]\nstore = 7", r"setting store .* is \*\*\*; it must be text"),
        ("[dispatch", "is not TOML"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadSetting, match=said):
        effective(DispatchSettings, {"config": str(path)}, {})


def test_a_file_that_is_not_there_and_a_variable_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="cannot read the configuration file"):
        effective(DispatchSettings, {"config": str(tmp_path / "none.toml")}, {})
    with pytest.raises(BadSetting, match=r"DHSCHED_DISPATCH_PROT is set.*did you mean DHSCHED_DISPATCH_PORT\?"):
        effective(DispatchSettings, {}, {"DHSCHED_DISPATCH_PROT": "1"})
    assert effective(DispatchSettings, {}, {"DHSCHED_INFER_PORT": "1", "DHSCHED_URL": "http://x"}).settings


def test_the_verb_shows_values_sources_and_no_secret(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DHSCHED_WORKER_KEY", "dhk_0_secret")
    result = CliRunner().invoke(cli.app, ["config", "--config", str(file), "--json"])
    assert result.exit_code == 0, result.output
    rows = {(row["role"], row["setting"]): row for row in json.loads(result.output)["settings"]}
    assert {role for role, _ in rows} == {"dispatch", "infer", "worker", "room"}
    assert rows["infer", "store"]["value"] == "redis://:***@store:6379"
    assert rows["worker", "key"] == {
        "role": "worker",
        "setting": "key",
        "value": "***",
        "source": "environment DHSCHED_WORKER_KEY",
    }
    assert "hunter2" not in result.output and "dhk_0_secret" not in result.output
    plain = CliRunner().invoke(cli.app, ["config", "worker"])
    assert plain.exit_code == 0 and "must be given" in plain.output
    assert isinstance(CliRunner().invoke(cli.app, ["config", "wroker"]).exception, BadSetting)
