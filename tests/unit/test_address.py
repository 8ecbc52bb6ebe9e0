"""The store's URL: what it may say, what is refused, and that no password is ever shown."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhsched.errors import BadAddress
from dhsched.store.link.address import HOSTS_MAX, Address, Host, parse_address


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
        # Several hosts.
        ("redis://a,b:7000", Address(host="a", others=(Host("b", 7000),))),
        (
            "valkeys://ann:a,b@A:1,[::1]:2,[FE80::1%eth0]/3",
            Address(
                scheme="valkeys",
                host="a",
                port=1,
                others=(Host("::1", 2), Host("fe80::1%eth0", 6379)),
                db=3,
                user="ann",
                password="a,b",
            ),
        ),
        # Sentinels.
        ("sentinel://s1/main", Address(scheme="sentinel", host="s1", port=26379, service="main")),
        (
            "sentinels://ann:pw@s1:1,s2/main.2/4?ca=/ca.pem&sentinel_user=bob&sentinel_password=p%26+w",
            Address(
                scheme="sentinels",
                host="s1",
                port=1,
                others=(Host("s2", 26379),),
                service="main.2",
                db=4,
                user="ann",
                password="pw",
                sentinel_user="bob",
                sentinel_password="p&+w",
                ca="/ca.pem",
            ),
        ),
        # What every scheme takes.
        ("redis://a,b?replicas=2&fsync=1", Address(host="a", others=(Host("b", 6379),), replicas=2, fsync=True)),
        ("rediss://a?replicas=8", Address(scheme="rediss", host="a", replicas=8)),
        ("unix:///run/s?db=2&replicas=1", Address(scheme="unix", path="/run/s", db=2, replicas=1)),
        (
            "sentinel://s1/main?replicas=1&fsync=1",
            Address(scheme="sentinel", host="s1", port=26379, service="main", replicas=1, fsync=True),
        ),
        ("redis://a?replicas=0&fsync=0", Address(host="a")),
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
        ("redis://store:0", "has no valid host or port"),
        ("redis://::1", "write IPv6 as [::1]:6379"),
        ("redis://[::1", "has no valid host or port"),
        ("redis://[::1]x", "has no valid host or port"),
        ("redis://[store]", "has no valid host: 'store' is not an address of IPv6"),
        ("redis://h1,,h2", "has no valid host: '' (host 2 of 3)"),
        ("redis://h1,", "has no valid host: '' (host 2 of 2)"),
        ("redis://,h1", "has no valid host: '' (host 1 of 2)"),
        ("redis://h1,h2:99999", "has no valid host or port (host 2 of 2)"),
        ("redis://h1,h2:x", "has no valid host or port (host 2 of 2)"),
        ("redis://h1, h2", "has no valid host: ' h2' (host 2 of 2)"),
        ("redis://h1,H1:6379", "names h1:6379 twice"),
        ("redis://" + ",".join(f"h{n}" for n in range(200)), f"names 200 hosts: it may name {HOSTS_MAX}"),
        ("redis://:word@h1:6379,:word@h2:6379", "has a login before a second host"),
        ("redis://h1:6379,:word@h2:6379", "has a login before a second host"),
        ("redis://h1,ann:word@h2", "has a login before a second host"),
        ("unix:///a,unix:///b?x=1", "unknown option 'x'"),
        ("sentinel://s1", "must give the name of the primary"),
        ("sentinel://s1/", "must give the name of the primary"),
        ("sentinel://s1/a%20b", "must give the name of the primary"),
        ("sentinel://s1/main/zero", "'zero' where a database number belongs"),
        ("sentinel://s1,s1/main", "names s1:26379 twice"),
        ("sentinel://s1/main?ca=/x", "TLS options need"),
        ("sentinel://s1/main?sentinel_pass=x", "unknown option 'sentinel_pass'"),
        ("redis://store?sentinel_user=x", "unknown option 'sentinel_user'"),
        ("redis://store?replicas=9", "replicas=9: give 0 to 8"),
        ("redis://store?replicas=-1", "'-1' where the number of replicas belongs"),
        ("redis://store?replicas=1.5", "'1.5' where the number of replicas belongs"),
        ("redis://store?replicas=²", "'²' where the number of replicas belongs"),
        ("redis://store?replicas=" + "9" * 5000, "where the number of replicas belongs"),
        ("redis://store?replicas=1&replicas=2", "option 'replicas' once"),
        ("redis://store?fsync=yes", "fsync='yes': give 1"),
        ("redis://store?fsync", "option 'fsync' once, with a value"),
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
        "redis://:hunter2@store,:hunter2@store2",
        "redis://store,:hunter2@store2",
        "redis://:hunter2@store,store",
        "sentinel://:hunter2@store",
        "sentinel://store/main?sentinel_password=hunter2&x=1",
        "sentinel://store/main?sentinel_password=x&hunter2",
        "sentinel://store/main?sentinel_password=x#hunter2",
        "sentinel://store/main?sentinel_password=x@hunter2",
        "sentinel://store/main?sentinel_passwort=hunter2",
        "sentinel://store/main/x?sentinel_password=hunter2",
        "redis://store?sentinel_password=hunter2",
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
        ("redis://:hunter2@a,[::1]:7/2?fsync=1&replicas=1", "redis://:***@a:6379,[::1]:7/2?replicas=1&fsync=1"),
        (
            "sentinel://ann:hunter2@s1,s2:7/main/2?sentinel_user=bob&sentinel_password=hunter2",
            "sentinel://ann:***@s1:26379,s2:7/main/2?sentinel_user=bob&sentinel_password=***",
        ),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = parse_address(url)
    assert address.redacted() == shown
    assert "hunter2" not in repr(address)


def test_the_address_of_one_host_has_the_login_and_the_options_and_nothing_else() -> None:
    several = parse_address("rediss://ann:pw@a,b:7/2?ca=/ca.pem&replicas=1")
    assert several.hosts == (Host("a", 6379), Host("b", 7))
    assert several.at(several.hosts[1]) == parse_address("rediss://ann:pw@b:7/2?ca=/ca.pem&replicas=1")
    named = parse_address("sentinel://ann:pw@s1,s2/main/2?sentinel_password=x&fsync=1")
    assert named.at(Host("10.0.0.1", 7)) == parse_address("redis://ann:pw@10.0.0.1:7/2?fsync=1")
    secure = parse_address("sentinels://s1/main?ca=/ca.pem")
    assert secure.tls and secure.at(Host("a", 1)) == parse_address("rediss://a:1?ca=/ca.pem")
    assert parse_address("unix:///run/s").hosts == ()


@pytest.mark.parametrize(
    ("url", "cautioned"),
    [
        ("redis://a,b", True),
        ("redis://a,b?replicas=1", False),
        ("redis://a", False),
        ("sentinel://a,b/main", False),
        ("unix:///run/s", False),
    ],
)
def test_several_servers_that_nothing_decides_between_are_no_high_availability(url: str, cautioned: bool) -> None:
    assert ("no high availability" in parse_address(url).caution) == cautioned


def test_a_file_with_the_password_of_the_sentinels_is_private(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_text("sentinel://s1/main?sentinel_password=hunter2\n")
    file.chmod(0o644)
    with pytest.raises(BadAddress, match="everybody can read"):
        parse_address(file.as_uri())
    file.chmod(0o600)
    assert parse_address(file.as_uri()).sentinel_password == "hunter2"


PIECES = [
    "a",
    "b",
    ".",
    ":",
    "@",
    ",",
    "[",
    "]",
    "::1",
    "/",
    "?",
    "&",
    "=",
    "%",
    "%40",
    "#",
    "0",
    "6379",
    "99999",
    " ",
    "+",
]
PIECES += ["\n", "é", "²", "replicas=", "fsync=1", "ca=", "db=", "sentinel_user=", "sentinel_password=", "main"]
STARTS = ["redis://", "rediss://", "sentinel://", "sentinels://", "unix:///", "redis:", "", "REDIS://"]


@given(st.sampled_from(STARTS), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("redis://", "[::1%@]")
@example("unix:///", "a?db=")
def test_any_text_is_an_address_that_can_be_written_again_or_is_refused(start: str, rest: str) -> None:
    try:
        address = parse_address(start + rest)
    except BadAddress as error:
        assert str(error).startswith("store address")
    else:
        assert parse_address(address.url()) == address


@given(
    st.sampled_from(["redis", "rediss", "sentinel", "sentinels", "unix", "http"]),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.booleans(),
)
def test_no_text_around_a_password_makes_it_shown(scheme: str, rest: str, of_sentinels: bool) -> None:
    """The word is the password of a login, or that of the Sentinels."""
    login = f"{scheme}://a:hunter2@{rest}"
    url = f"{scheme}://s1/main?{rest}&sentinel_password=hunter2{rest}" if of_sentinels else login
    try:
        assert "hunter2" not in parse_address(url).redacted()
    except BadAddress as error:
        assert "hunter2" not in str(error)
