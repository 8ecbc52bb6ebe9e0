"""Settings: flags over environment over default, and a bad one is named before anything starts."""

from pathlib import Path

import pytest

from dhsched import failpoints
from dhsched.errors import BadSetting
from dhsched.settings import DispatchSettings, effective, key_of, settings_from
from dhsched.worker.settings import WorkerSettings


def test_a_flag_wins_over_the_environment_which_wins_over_the_default() -> None:
    environment = {"DHSCHED_STORE": "redis://store", "DHSCHED_DISPATCH_PORT": "7500", "DHSCHED_LOG_JSON": "true"}
    settings = settings_from(DispatchSettings, {"port": 7600, "host": None}, environment)
    assert (settings.store, settings.port, settings.host, settings.log_json) == (
        "redis://store",
        7600,
        "127.0.0.1",
        True,
    )
    assert settings_from(DispatchSettings, {}, environment).port == 7500


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "DHSCHED_DISPATCH_PORT",
            "many",
            "_PORT. is 'many'; it must be a whole number from 0 to 65535",
        ),
        ("DHSCHED_DISPATCH_PORT", "70000", "port .* is 70000"),
        ("DHSCHED_DISPATCH_REFRESH_MIN_S", "2", "refresh_min_s is 2 and refresh_max_s 1"),
        ("DHSCHED_LOG_LEVEL", "loud", "must be one of debug, info, warning, error"),
        ("DHSCHED_LOG_JSON", "perhaps", "DHSCHED_LOG_JSON"),
    ],
)
def test_a_bad_setting_is_named(key: str, value: str, said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        settings_from(DispatchSettings, {}, {key: value})


def test_a_failpoint_that_does_not_exist_is_refused() -> None:
    assert failpoints.armed({}) is None
    assert failpoints.armed({"DHSCHED_FAILPOINT": "create.after:kill"}) == "create.after"
    with pytest.raises(BadSetting, match=r"create\.before"):
        failpoints.armed({"DHSCHED_FAILPOINT": "creat.after:kill"})


def test_a_secret_may_be_a_credential(tmp_path: Path) -> None:
    (tmp_path / "DHSCHED_STORE").write_text("redis://:loaded@store\n")
    credential = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    found = effective(DispatchSettings, {}, credential)
    assert found.settings.store == "redis://:loaded@store" and found.sources["store"] == "credential DHSCHED_STORE"
    assert (
        settings_from(DispatchSettings, {}, {**credential, "DHSCHED_STORE": "redis://other"}).store == "redis://other"
    )
    assert settings_from(DispatchSettings, {}, {"CREDENTIALS_DIRECTORY": "/nonexistent"}).store is None


def test_a_key_may_stand_in_a_credential(tmp_path: Path) -> None:
    (tmp_path / "DHSCHED_WORKER_KEY").write_text("dhk_1_loaded")
    given = {"runtime": "echo", "pool": "gpu", "capacity": 1}
    loaded = settings_from(WorkerSettings, given, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert key_of(loaded) == "dhk_1_loaded"
    named = settings_from(WorkerSettings, given, {"DHSCHED_WORKER_KEY_FILE": str(tmp_path / "DHSCHED_WORKER_KEY")})
    assert (named.key, key_of(named)) == ("", "dhk_1_loaded")


@pytest.mark.parametrize(
    ("content", "said"), [(b" \n", "is empty"), (b"x" * 70_000, "too long"), (b"\xff\xfe", "not text")]
)
def test_a_secret_that_cannot_be_read_is_no_start(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "DHSCHED_STORE").write_bytes(content)
    with pytest.raises(BadSetting, match=f"{said}.*; check credential DHSCHED_STORE"):
        settings_from(DispatchSettings, {}, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
