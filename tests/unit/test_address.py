"""The store's URL: what it may say, what is refused, and that no password is ever shown."""

import pytest

from dhsched.errors import BadAddress
from dhsched.store.link.address import Address, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address()),
        ("redis://store", Address(host="store")),
        ("valkey://store:7000/3", Address(scheme="valkey", host="store", port=7000, db=3)),
        ("redis://:p%40ss@store", Address(host="store", password="p@ss")),
        ("redis://ann:p%3Ass@[::1]:7000", Address(host="::1", port=7000, user="ann", password="p:ss")),
        ("redis://ann@store", Address(host="store", user="ann")),
        ("redis://:a,b@store", Address(host="store", password="a,b")),
        ("rediss://store?ca=/ca.pem", Address(scheme="rediss", host="store", ca="/ca.pem")),
        (
            "valkeys://store?cert=/c.pem&key=/k.pem",
            Address(scheme="valkeys", host="store", cert="/c.pem", key="/k.pem"),
        ),
        ("unix:///run/store.sock", Address(scheme="unix", path="/run/store.sock")),
        (
            "unix://ann:secret@/run/a%20b.sock?db=2",
            Address(scheme="unix", path="/run/a b.sock", db=2, user="ann", password="secret"),
        ),
    ],
)
def test_a_url_is_an_address(url: str, address: Address) -> None:
    assert parse_address(url) == address
    assert parse_address(address.url()) == address


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://store", "must start with redis://"),
        ("store:6379", "must start with redis://"),
        ("", "must start with redis://"),
        ("redis://store:port", "has no valid host or port"),
        ("redis://store:99999", "has no valid host or port"),
        ("redis://h1,h2:6379", "names several hosts (h1,h2:6379)"),
        ("redis://h1:6379,h2:6379", "names several hosts (h1:6379,h2:6379)"),
        ("redis://ann:a,b@h1,h2", "names several hosts (h1,h2)"),
        ("redis://:word@h1:6379,:word@h2:6379", "names several hosts, or has an @ in its password"),
        ("redis://h1 h2", "has no valid host: 'h1 h2'"),
        ("redis://h1;h2:6379", "has no valid host: 'h1;h2'"),
        ("redis://store/zero", "'zero' where a database number belongs"),
        ("redis://store/-1", "'-1' where a database number belongs"),
        ("redis://store?timeout=3", "unknown option 'timeout'"),
        ("redis://store?ca=/ca.pem", "TLS options need rediss://"),
        ("rediss://store?ca=", "option 'ca' once, with a value"),
        ("rediss://store?ca=/a&ca=/b", "option 'ca' once, with a value"),
        ("rediss://store?cert=/c.pem", "cert and key together"),
        ("redis://:pass#word@store", "in a password as %2F %3F %23 %40"),
        ("unix://", "absolute path"),
        ("unix://run/store.sock", "absolute path"),
        ("unix:///run/store.sock?ca=/x", "unknown option 'ca'"),
        ("unix:///" + "x" * 200, "201 bytes"),
    ],
)
def test_what_is_not_understood_is_refused(url: str, problem: str) -> None:
    with pytest.raises(BadAddress, match="store address") as caught:
        parse_address(url)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:hunter2@store/zero",
        "redis://:hunter2@store?x=1",
        "http://ann:hunter2@store",
        "redis://ann:hun@ter2@store:port",
        "redis://ann:x#hunter2@store",
        "redis://ann:hunter2#@store",
        "redis://ann:hunter2/@store",
        "redis://ann:1/hunter2@store",
        "redis://ann:1?hunter2@store",
        "rediss://:hunter2@store?cert=/c",
    ],
)
def test_a_refused_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_address(url)
    assert "ter2" not in str(caught.value)
    assert "store" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://ann:hunter2@store/1", "redis://ann:***@store:6379/1"),
        ("valkeys://:hunter2@[::1]:7?ca=/a", "valkeys://:***@[::1]:7?ca=/a"),
        ("unix://:hunter2@/run/s?db=1", "unix://:***@/run/s?db=1"),
        ("redis://store", "redis://store:6379"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = parse_address(url)
    assert address.redacted() == shown
    assert "hunter2" not in repr(address)
