"""The first connection: one clear error for everything that can be at the other end, and never a hang."""

import asyncio
from typing import Any

import pytest

from dhsched.errors import StoreError, StoreIncompatible, StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.link.cluster import Node, key_slot, moved_to, slot_owner
from dhsched.store.link.link import Link, LinkSettings
from tests.harness.fake_store import OK, FakeStore, bulk
from tests.harness.linking import ONE_ATTEMPT, PATIENT, eventually

SCRIPT = [b"SCRIPT", b"LOAD", b"return 1"]
REPLICA = b"%2\r\n+role\r\n+replica\r\n+mode\r\n+standalone\r\n"


async def refusal(fake: FakeStore, settings: LinkSettings = ONE_ATTEMPT, **address: Any) -> StoreError:
    """What opening a link to `fake` fails with."""
    where = Address(host="127.0.0.1", port=fake.port, **address)
    with pytest.raises(StoreError) as caught:
        await Link.open(where, {"place": b"return 1"}, settings)
    assert f"127.0.0.1:{fake.port}" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("greeting", "kind", "words"),
    [
        ({b"HELLO": b"HTTP/1.0 400 Bad Request\r\n"}, StoreIncompatible, "is not a store"),
        ({b"HELLO": b"\x15\x03\x01\x00\x02\x02\x28"}, StoreIncompatible, "is not a store"),
        ({b"HELLO": b"-ERR unknown command `HELLO`\r\n"}, StoreIncompatible, "does not know RESP3"),
        ({b"HELLO": b"-NOPROTO unsupported protocol version\r\n"}, StoreIncompatible, "does not know RESP3"),
        ({b"HELLO": b"+hi\r\n"}, StoreIncompatible, "answers HELLO with"),
        ({b"INFO": bulk(b"redis_version:6.2.14\r\n")}, StoreIncompatible, "redis 6.2.14: use Valkey 7.2 or Redis 7.0"),
        ({b"INFO": bulk(b"redis_version:7.2.4\r\nvalkey_version:7.0.9\r\n")}, StoreIncompatible, "valkey 7.0.9"),
        ({b"INFO": bulk(b"nonsense")}, StoreIncompatible, "redis 0"),
        ({b"SCRIPT": bulk(b"f" * 40)}, StoreIncompatible, "script place"),
        ({b"HELLO": REPLICA}, StoreRefused, "read-only replica"),
        ({b"HELLO": b"-WRONGPASS invalid username-password pair\r\n"}, StoreRefused, "check user and password"),
        ({b"HELLO": b"-NOAUTH HELLO must be called\r\n"}, StoreRefused, "give a password in the URL"),
        ({b"SCRIPT": b"-NOPERM no permission\r\n"}, StoreRefused, "ACL"),
        ({b"SCRIPT": b"-LOADING Redis is loading the dataset in memory\r\n"}, StoreRefused, "wait until it has read"),
    ],
)
async def test_one_clear_error(greeting: dict[bytes, bytes | None], kind: type[StoreError], words: str) -> None:
    async with FakeStore(greeting=greeting) as fake:
        error = await refusal(fake)
    assert type(error) is kind
    assert words in str(error)


async def test_a_server_that_says_nothing() -> None:
    async with FakeStore(greeting={b"HELLO": None}) as fake:
        error = await refusal(fake, LinkSettings(connect_s=0.3))
    assert isinstance(error, StoreUnavailable) and "did not connect and greet within 0.3 s" in str(error)


async def test_a_server_that_hangs_up() -> None:
    async with FakeStore(greeting={b"HELLO": None}) as fake:
        opening = asyncio.create_task(refusal(fake))
        await eventually(lambda: fake.greetings)
        fake.cut()
        error = await opening
    assert isinstance(error, StoreUnavailable) and not error.unknown


async def test_nobody_there() -> None:
    async with FakeStore() as fake:
        await fake.vanish()
        error = await refusal(fake)
    assert isinstance(error, StoreUnavailable) and not error.unknown
    assert "cannot reach store" in str(error)


async def test_loading_is_waited_for() -> None:
    async with FakeStore(greeting={b"SCRIPT": b"-LOADING loading\r\n"}) as fake:
        opening = asyncio.create_task(Link.open(fake.address, {"place": b"return 1"}, PATIENT))
        await eventually(lambda: fake.greetings[-1:] == [SCRIPT])
        del fake.greeting[b"SCRIPT"]
        async with await opening as link:
            assert await link.call("PING") == b"OK"


async def test_the_last_attempt_does_not_hide_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeStore(greeting={b"SCRIPT": b"-LOADING loading\r\n"}) as fake:
        opening = asyncio.create_task(refusal(fake, PATIENT))
        await eventually(lambda: fake.greetings[-1:] == [SCRIPT])
        fake.greeting[b"HELLO"] = None  # From here on every attempt runs out of time.
        fake.greetings.clear()
        await eventually(lambda: fake.greetings)
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + PATIENT.connect_s)
        error = await opening
    assert isinstance(error, StoreRefused) and error.code == "LOADING"


async def test_what_waiting_cannot_change_is_said_at_once() -> None:
    async with FakeStore(greeting={b"HELLO": b"-WRONGPASS invalid\r\n"}) as fake, asyncio.timeout(30):
        with pytest.raises(StoreRefused, match="WRONGPASS"):
            await Link.open(fake.address, {}, PATIENT)


async def test_what_the_greeting_says() -> None:
    async with FakeStore() as fake:
        where = Address(host="127.0.0.1", port=fake.port, user="ann", password="hunter2", db=3)
        async with await Link.open(where, {"place": b"return 1"}, LinkSettings(client_name="dispatch")) as link:
            assert str(link.server) == "redis 7.2.0"
    assert fake.greetings == [
        [b"HELLO", b"3", b"AUTH", b"ann", b"hunter2", b"SETNAME", b"dispatch"],
        [b"SELECT", b"3"],
        [b"INFO", b"server"],
        SCRIPT,
    ]


async def test_no_error_shows_the_password() -> None:
    async with FakeStore(greeting={b"HELLO": b"-WRONGPASS invalid\r\n"}) as fake:
        assert "hunter2" not in str(await refusal(fake, password="hunter2"))
        fake.greeting[b"HELLO"] = b"garbage\r\n"
        assert "hunter2" not in str(await refusal(fake, password="hunter2"))


async def test_in_a_cluster_the_owner_of_the_slot_is_found() -> None:
    cluster = b"%2\r\n+role\r\n+replica\r\n+mode\r\n+cluster\r\n"
    async with FakeStore() as there, FakeStore() as here:
        slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n+127.0.0.1\r\n:%d\r\n+there\r\n" % there.port
        here.greeting[b"HELLO"] = cluster  # Even a replica can say where the slot is.
        here.answer = lambda command: b"+here\r\n" if command[1] == b"MYID" else slots
        there.answer = lambda command: b"+elsewhere\r\n"
        async with await Link.open(here.address, {}, slot_key="dh:{main}:cell") as link:
            assert await link.call("WHERE") == b"elsewhere"


async def test_a_slot_of_nobody_is_an_error() -> None:
    cluster = b"%2\r\n+role\r\n+master\r\n+mode\r\n+cluster\r\n"
    async with FakeStore(lambda command: OK if command[1] == b"MYID" else b"*0\r\n", {b"HELLO": cluster}) as fake:
        with pytest.raises(StoreRefused, match=f"serves slot {key_slot('main')} ") as caught:
            await Link.open(fake.address, {}, ONE_ATTEMPT, slot_key="dh:{main}:cell")
    assert caught.value.code == "CLUSTERDOWN"


def test_slots_are_those_of_the_cluster_specification() -> None:
    assert key_slot("123456789") == 0x31C3
    assert key_slot("foo{bar}{zap}") == key_slot("bar")
    assert key_slot("foo{}{bar}") != key_slot("bar")
    assert key_slot("dh:{main}:cell") == key_slot("dh:{main}:live:1")


def test_the_words_of_a_cluster() -> None:
    slots = [[0, 99, [b"h", 1, b"a"], [b"i", 2, b"b"]], [100, 200, [b"?", 3, b"c"]], [300, 300, [None, 4, b"d"]]]
    assert slot_owner(slots, 99) == Node("a", "h", 1)
    assert slot_owner(slots, 100) == Node("c", "", 3)
    assert slot_owner(slots, 300) == Node("d", "", 4)
    assert slot_owner(slots, 201) is None
    assert moved_to("MOVED 3999 10.0.0.1:6381") == Node("", "10.0.0.1", 6381)
    assert moved_to("MOVED 3999 ::1:6381") == Node("", "::1", 6381)
    assert moved_to("MOVED 3999 :6381") == Node("", "", 6381)
