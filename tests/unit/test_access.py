"""The parts of access that decide: buckets, bounds, the text of keys, where a key is found."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dhsched.access.api_keys import ApiKey, id_of, matches, new_key
from dhsched.access.bucket import Bucket
from dhsched.access.callers import Bounds
from dhsched.access.gate import bearer
from dhsched.access.key_file import ENTRIES_MAX, KeyFile, origin
from dhsched.access.rules import RULES, rule_of
from dhsched.client.credentials import find_key
from dhsched.errors import BadSetting


def test_a_bucket_fills_with_time_and_never_past_a_second() -> None:
    bucket = Bucket(10, now=0)
    assert [bucket.take(0) for _ in range(10)] == [0] * 10
    assert bucket.take(0) == pytest.approx(0.1)
    assert bucket.take(0.1) == 0 and bucket.take(0.1) > 0
    assert [bucket.take(100) for _ in range(11)][9:] == [0, pytest.approx(0.1)]
    slow = Bucket(0.1, now=0)
    assert slow.take(0) == 0 and slow.take(0) == pytest.approx(10)


def test_what_is_owed_is_waited_for() -> None:
    bucket = Bucket(10, now=0)
    assert bucket.charge(10, 0) == 0
    assert bucket.charge(5, 0) == pytest.approx(0.5)
    assert bucket.charge(0, 0.5) == pytest.approx(0)
    assert bucket.take(0.5) > 0


def test_bounds_of_a_worker_key() -> None:
    bounds = Bounds("gpu-*", "eu-?", 100, labels="zone=?,big")
    fine = {"name": "gpu-7", "pool": "eu-1", "capacity": 100, "labels": "big, zone=a", "replaces": "gpu-7#3"}
    assert bounds.refusal(**fine) == ""  # type: ignore[arg-type]
    for changed, said in (
        ({"name": "Gpu-7"}, "named gpu-*"),
        ({"pool": "eu-10"}, "of Pool eu-?"),
        ({"capacity": 101}, "capacity 100 at most"),
        ({"labels": "big,zone=10"}, "not with label zone=10"),
        ({"replaces": "gpu-8#1"}, "only boots of its own name"),
    ):
        assert said in bounds.refusal(**{**fine, **changed})  # type: ignore[arg-type]
    assert Bounds().refusal(name="x", pool="y", capacity=10**6, labels="any,thing", replaces="x#1") == ""
    assert "no labels" in Bounds(labels="").refusal(name="x", pool="y", capacity=1, labels="a")
    assert "only boots of its own name" in Bounds().refusal(name="x", pool="y", capacity=1, replaces="z#1")


def test_bounds_of_a_machine_key_are_one_worker() -> None:
    bounds = Bounds("gpu-7", "eu-1", 4, "big,zone=a", machine=True)
    fine = {"name": "gpu-7", "pool": "eu-1", "capacity": 4, "labels": "zone=a big"}
    assert bounds.refusal(**fine) == ""  # type: ignore[arg-type]
    for changed in ({"name": "gpu-70"}, {"pool": "eu-10"}, {"capacity": 3}, {"capacity": 5}, {"labels": "big"}):
        assert bounds.refusal(**{**fine, **changed})  # type: ignore[arg-type]


def test_a_key_is_known_by_its_whole_text() -> None:
    made = new_key()
    record = ApiKey(id=made.id, hash=made.hash, role="app")
    assert id_of(made.text) == made.id and matches(made.text, record)
    for other in (made.text[:-1], made.text + "x", new_key().text, ""):
        assert not matches(other, record)
    assert not matches(made.text, None)
    assert "dhk_" not in repr(record) and made.text.split("_", 2)[2] not in repr(record)


def test_what_has_no_rule_is_for_admins() -> None:
    assert not rule_of("an endpoint of tomorrow").scopes and not rule_of("an endpoint of tomorrow").everyone
    assert all(rule.shown for rule in RULES.values())
    public = {"end_session", "join", "healthz", "readyz", "console_page", "console_file"}
    assert {name for name, rule in RULES.items() if rule.public} == public


def test_the_header() -> None:
    assert bearer("Bearer x") == bearer("bearer  x ") == "x"
    assert bearer("Basic x") == bearer("x") == bearer("") == ""


def test_where_a_key_is_found(tmp_path: Path) -> None:
    noted = {"XDG_STATE_HOME": str(tmp_path)}
    file = KeyFile(noted)
    assert find_key("http://127.0.0.1:7400", noted) == ""
    file.put({"http://127.0.0.1:7400": "one", "http://127.0.0.1:7401": "two"})
    assert os.stat(file.path).st_mode & 0o777 == 0o600
    assert find_key("http://localhost:7400/", noted) == "one", "whatever this machine is called"
    own = tmp_path / "key"
    own.write_text("mine\n")
    assert find_key("http://127.0.0.1:7400", {**noted, "DHSCHED_KEY_FILE": str(own)}) == "mine"
    assert find_key("http://127.0.0.1:7400", {**noted, "DHSCHED_KEY": "given"}) == "given"
    with pytest.raises(BadSetting, match=r"cannot read .*none .*check DHSCHED_KEY_FILE"):
        find_key("http://x", {"DHSCHED_KEY_FILE": str(tmp_path / "none")})
    file.put({"http://127.0.0.1:7400": "later"})
    file.drop({"http://127.0.0.1:7400": "one", "http://127.0.0.1:7401": "two"})
    assert find_key("http://127.0.0.1:7400", noted) == "later", "another deployment has taken the address"
    assert find_key("http://127.0.0.1:7401", noted) == ""
    assert origin("https://x/y") == "https://x:443"


def test_who_writes_a_key_down_takes_no_other_away(tmp_path: Path) -> None:
    """Replicas that start together write into one file; what was left behind does not fill it."""
    noted = {"XDG_STATE_HOME": str(tmp_path)}
    ports = range(7000, 7032)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda port: KeyFile(noted).put({f"http://127.0.0.1:{port}": f"k{port}"}), ports))
    assert [KeyFile(noted).get(f"http://[::1]:{port}") for port in ports] == [f"k{port}" for port in ports]
    file = KeyFile(noted)
    made = new_key().text
    file.keep(made)
    file.put({"http://127.0.0.1:7400": made})
    assert file.kept() == [made]
    for port in range(1, 2 * ENTRIES_MAX):
        file.put({f"http://127.0.0.1:{port}": "left behind"})
    assert len(json.loads(file.path.read_text())) == ENTRIES_MAX
    file.put({"http://127.0.0.1:7400": made})
    file.forget(made)
    assert file.get("http://127.0.0.1:7400") == "" and file.kept() == []


def test_without_a_home_there_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert find_key("http://127.0.0.1:7400", {}) == ""
