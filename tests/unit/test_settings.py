"""Settings: flags over environment over default, and a bad one is named before anything starts."""

import pytest

from dhsched import failpoints
from dhsched.errors import BadSetting
from dhsched.settings import DispatchSettings, settings_from


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
