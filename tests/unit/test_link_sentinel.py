"""Sentinels: the highest config-epoch decides, what they name is greeted, and a change is heard."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from dhsched.errors import StoreError, StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address, Host
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.link.sentinel import Named, newest
from tests.harness.fake_sentinel import FakeSentinel
from tests.harness.fake_store import FakeStore
from tests.harness.fleet import until

OLD, NEW, SAME = Host("10.0.0.1", 1), Host("10.0.0.2", 1), Host("db2", 1)
DOWN = StoreUnavailable("Connection refused", unknown=False)
QUICK = LinkSettings(connect_s=60, probe_s=0.3, watch_s=0.05, backoff_max_s=0.1)
BY_MESSAGE = replace(QUICK, probe_s=30, watch_s=3600, backoff_first_s=0.01)
"""Asked again only when a message says so."""
HELLO_REPLICA = b"%2\r\n+role\r\n+replica\r\n+mode\r\n+standalone\r\n"


@pytest.mark.parametrize(
    ("answers", "before", "named"),
    [
        ([], None, None),
        ([DOWN, DOWN, DOWN], OLD, None),
        ([DOWN, Named(NEW, 0), DOWN], None, Named(NEW, 0)),
        # A minority that was cut off names the old primary, and is first in the list.
        ([Named(OLD, 3), Named(NEW, 4), Named(NEW, 4)], None, Named(NEW, 4)),
        ([Named(OLD, 3), Named(OLD, 3), Named(NEW, 4)], OLD, Named(NEW, 4)),
        ([Named(OLD, 9), Named(NEW, 10), DOWN], None, Named(NEW, 10)),
        # One server by two names: as before, else as most say, else as the first says.
        ([Named(NEW, 4), Named(SAME, 4), Named(NEW, 4)], SAME, Named(SAME, 4)),
        ([Named(NEW, 4), Named(SAME, 4), Named(SAME, 4)], None, Named(SAME, 4)),
        ([Named(NEW, 4), Named(SAME, 4)], OLD, Named(NEW, 4)),
    ],
)
def test_the_highest_config_epoch_decides(
    answers: list[Named | StoreError], before: Host | None, named: Named | None
) -> None:
    assert newest(answers, before) == named


def behind(*sentinels: FakeSentinel, **more: Any) -> Address:
    first, *others = [Host("127.0.0.1", each.port) for each in sentinels]
    return Address(scheme="sentinel", service="main", host=first.name, port=first.port, others=tuple(others), **more)


async def failure(address: Address, **settings: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with asyncio.timeout(30):
            await Link.open(
                address, {}, LinkSettings(**{"connect_s": 2, "probe_s": 1, "backoff_max_s": 0.1, **settings})
            )
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)
    return caught.value


async def test_a_link_opens_while_one_sentinel_is_down_and_one_is_silent() -> None:
    async with FakeStore() as store, FakeSentinel() as gone, FakeSentinel() as silent, FakeSentinel() as well:
        well.name(store.port, 1)
        address = behind(gone, silent, well)
        await gone.vanish()
        async with await Link.open(address, {}, QUICK) as link:
            assert await link.call("PING") == b"OK"
            assert link.address is address


async def test_a_minority_that_names_the_old_primary_is_outvoted_by_the_config_epoch() -> None:
    async with FakeStore() as old, FakeStore() as new, FakeSentinel() as late, FakeSentinel() as well:
        late.name(old.port, 3)
        well.name(new.port, 4)
        async with await Link.open(behind(late, well), {}, QUICK) as link:
            assert await link.call("PING") == b"OK"
        assert [b"PING"] in new.commands and old.greetings == []


async def test_the_link_moves_as_soon_as_a_sentinel_says_so() -> None:
    async with FakeStore() as old, FakeStore() as new, FakeSentinel() as a, FakeSentinel() as b:
        for each in (a, b):
            each.name(old.port, 0)
        async with await Link.open(behind(a, b), {}, BY_MESSAGE) as link:
            await until(lambda: a.subscribed and b.subscribed, "the subscriptions", 30)
            b.name(new.port, 1)
            b.switched(b"another")
            b.switched()
            await until(lambda: link.reconnects == 1 and link.state == "connected", "the link to move", 30)
            assert await link.call("PING") == b"OK"
        assert [b"PING"] in new.commands


async def test_a_message_without_a_new_primary_changes_nothing() -> None:
    async with FakeStore() as store, FakeSentinel() as sentinel:
        sentinel.name(store.port, 0)
        async with await Link.open(behind(sentinel), {}, BY_MESSAGE) as link:
            await until(lambda: sentinel.subscribed, "the subscription", 30)
            asked = len(sentinel.commands)
            sentinel.switched()
            await until(lambda: len(sentinel.commands) > asked, "the next question", 30)
            assert await link.call("PING") == b"OK" and link.reconnects == 0


async def test_a_change_is_noticed_without_a_message() -> None:
    async with FakeStore() as old, FakeStore() as new, FakeSentinel() as sentinel:
        sentinel.name(old.port, 0)
        async with await Link.open(behind(sentinel), {}, QUICK) as link:
            sentinel.name(new.port, 1)
            await until(lambda: link.reconnects == 1 and link.state == "connected", "the link to move", 30)


async def test_a_server_that_does_not_answer_is_left_when_another_is_named() -> None:
    async with FakeStore(lambda _command: None) as old, FakeStore() as new, FakeSentinel() as sentinel:
        sentinel.name(old.port, 0)
        slow = replace(QUICK, deadline_s=60, dead_after_s=60)
        async with await Link.open(behind(sentinel), {}, slow) as link:
            stuck = link.call("SET", "k", 1)
            await until(lambda: old.commands, "the call to arrive", 30)
            sentinel.name(new.port, 1)
            with pytest.raises(StoreUnavailable, match="the Sentinels name") as caught:
                await asyncio.wait_for(stuck, 30)
            assert caught.value.unknown
            assert await link.call("PING") == b"OK"


async def test_what_is_named_and_no_primary_is_refused_and_asked_for_again() -> None:
    async with FakeStore() as store, FakeSentinel() as sentinel:
        store.greeting[b"HELLO"] = HELLO_REPLICA
        sentinel.name(store.port, 0)
        error = await failure(behind(sentinel), probe_s=1)
        assert isinstance(error, StoreRefused) and error.code == "READONLY"
        assert f"name 127.0.0.1:{store.port}: " in str(error)
        opening = asyncio.create_task(Link.open(behind(sentinel), {}, QUICK))
        await asyncio.sleep(0.1)
        store.greeting[b"HELLO"] = FakeStore().greeting[b"HELLO"]
        async with await opening as link:
            assert await link.call("PING") == b"OK"


async def test_an_error_names_every_sentinel_and_its_reason() -> None:
    async with FakeSentinel() as silent, FakeStore() as store, FakeSentinel() as gone:
        address = behind(silent, gone, password="hunter2", sentinel_password="hunter2")
        address = replace(address, others=(*address.others, Host("127.0.0.1", store.port)))
        await gone.vanish()
        error = await failure(address)
    assert isinstance(error, StoreUnavailable)
    for reason in (f"{silent.port}: no answer within 1 s;", f"{gone.port}: ", f"{store.port}: its answer is not"):
        assert reason in str(error)


async def test_an_unknown_name_is_said_at_once() -> None:
    async with FakeSentinel(("127.0.0.1", 1)) as a, FakeSentinel(("127.0.0.1", 1)) as b:
        error = await failure(replace(behind(a, b), service="other"), connect_s=60)
    assert isinstance(error, StoreRefused) and "No such master" in str(error)


@pytest.mark.parametrize("port", [0, 99999])
async def test_a_sentinel_that_names_nonsense_is_not_believed(port: int) -> None:
    async with FakeSentinel(("127.0.0.1", port)) as sentinel:
        assert "its answer is not that of" in str(await failure(behind(sentinel)))


async def test_sentinels_and_the_store_have_logins_of_their_own() -> None:
    async with FakeStore() as store, FakeSentinel() as sentinel:
        sentinel.name(store.port, 0)
        login = {"user": "ann", "password": "pw", "sentinel_user": "bob", "sentinel_password": "other"}
        async with await Link.open(behind(sentinel, **login), {}, QUICK) as link:
            assert await link.call("PING") == b"OK"
        assert sentinel.commands[0] == [b"AUTH", b"bob", b"other"]
        assert store.greetings[0][:5] == [b"HELLO", b"3", b"AUTH", b"ann", b"pw"]
        sentinel.commands.clear()
        async with await Link.open(behind(sentinel, user="ann", password="pw"), {}, QUICK):
            assert [b"AUTH"] not in [command[:1] for command in sentinel.commands], "they are not shown the store's"
