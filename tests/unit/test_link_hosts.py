"""Several hosts in one URL: which of them is used, what two primaries lead to, and what errors say."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from dhsched.errors import StoreError, StoreIncompatible, StoreRefused, StoreUnavailable
from dhsched.local.ports import free_port
from dhsched.store.link.address import Address, Host
from dhsched.store.link.hosts import Answer, Choice, Hosts, Occurrences, TwoPrimaries, choose_primary, read_answer
from dhsched.store.link.link import Link, LinkSettings
from tests.harness.fake_store import FakeStore, bulk
from tests.harness.fleet import until

DOWN = StoreUnavailable("Connection refused", unknown=False)
REPLICA = Answer(primary=False)


def primary(online: int = 0, run_id: str = "") -> Answer:
    return Answer(primary=True, online=online, run_id=run_id)


@pytest.mark.parametrize(
    ("answers", "before", "replicas", "choice"),
    [
        # Nobody to use.
        ([DOWN, DOWN], None, 0, Choice(None)),
        ([REPLICA, DOWN], 1, 0, Choice(None)),
        ([REPLICA, REPLICA], 0, 2, Choice(None)),
        # One primary: it is used, wherever the link was before, and also with fewer replicas than it should have.
        ([primary(), REPLICA], None, 0, Choice(0)),
        ([DOWN, primary()], 0, 0, Choice(1)),
        ([REPLICA, primary(1)], 0, 1, Choice(1)),
        ([primary(0), DOWN], 0, 1, Choice(0)),
        ([DOWN, primary(0)], 0, 1, Choice(1)),
        # Two primaries, one of them with its replicas: that one, wherever the link was before.
        ([primary(0), primary(1), REPLICA], 0, 1, Choice(1)),
        ([primary(2), primary(1)], 1, 2, Choice(0)),
        ([primary(0), primary(1)], None, 1, Choice(1)),
        # Two primaries, and nothing decides: where it was.
        ([primary(), primary()], 0, 0, Choice(0, (1,))),
        ([primary(), primary()], 1, 0, Choice(1, (0,))),
        ([primary(1), primary(1)], 1, 1, Choice(1, (0,))),
        ([primary(0), primary(0)], 1, 1, Choice(1, (0,))),
        ([primary(5), primary(0)], 1, 0, Choice(1, (0,))),
        ([primary(1), primary(1), primary(0)], 2, 1, Choice(2, (0, 1))),
        # Nothing decides, and the link was nowhere, or at one that is no primary now: none of them.
        ([primary(), primary()], None, 0, Choice(None, (0, 1))),
        ([primary(), primary(), DOWN], 2, 0, Choice(None, (0, 1))),
        ([primary(1), primary(1), REPLICA], 2, 1, Choice(None, (0, 1))),
        # One server under two names is one.
        ([primary(0, "x"), primary(0, "x")], None, 0, Choice(0)),
        ([primary(0, "x"), primary(0, "x")], 1, 0, Choice(1)),
        ([primary(0, "x"), primary(0, "y"), primary(0, "x")], 2, 0, Choice(2, (1,))),
    ],
)
def test_which_host_is_used(
    answers: list[Answer | StoreError], before: int | None, replicas: int, choice: Choice
) -> None:
    assert choose_primary(answers, before=before, replicas=replicas) == choice


@pytest.mark.parametrize(
    ("info", "answer"),
    [
        ({"role": "master", "run_id": "x"}, Answer(primary=True, run_id="x")),
        ({"role": "slave"}, REPLICA),
        ({"role": "master", "cluster_enabled": "1"}, Answer(primary=True, cluster=True)),
        (
            {
                "role": "master",
                "connected_slaves": "4",
                "slave_expires_tracked_keys": "0",
                "slave0": "ip=10.0.0.1,port=1,state=online,offset=9,lag=0,type=replica",
                "slave1": "ip=10.0.0.2,port=1,state=online,offset=9,lag=10",
                "slave2": "ip=10.0.0.3,port=1,state=online,offset=9,lag=11",
                "slave3": "ip=10.0.0.4,port=1,state=wait_bgsave,offset=0,lag=0",
            },
            primary(2),
        ),
    ],
)
def test_what_a_host_says_of_itself(info: dict[str, str], answer: Answer) -> None:
    assert read_answer(info) == answer


def test_a_sentinel_is_no_store() -> None:
    with pytest.raises(StoreIncompatible, match="sentinel://"):
        read_answer({"sentinel_masters": "1"})


def test_two_primaries_are_reported_once_per_occurrence() -> None:
    heard: list[TwoPrimaries] = []
    found, seen = TwoPrimaries("a:1", ("b:1",)), Occurrences()
    seen.note(found, all_answered=True, now=1.0)
    seen.report_to(heard.append)
    assert heard == [found]  # It began before anybody listened, and goes on.
    seen.note(found, all_answered=True, now=2.0)
    seen.note(None, all_answered=False, now=3.0)  # One is silent: that is no end.
    seen.note(found, all_answered=True, now=4.0)
    assert (heard, seen.count) == ([found], 1)
    seen.note(None, all_answered=True, now=5.0)
    seen.note(found, all_answered=False, now=6.0)
    assert (heard, seen.count) == ([found, found], 2)
    seen.note(None, all_answered=False, now=67.0)  # Silent for a minute: the next one is another.
    seen.note(found, all_answered=False, now=68.0)
    assert seen.count == 3
    assert str(found) == "a:1 and b:1 are primaries at once: staying with a:1, refusing b:1"


# -- with servers that say what the test wants

HELLO_REPLICA = b"%2\r\n+role\r\n+replica\r\n+mode\r\n+standalone\r\n"
QUICK = LinkSettings(connect_s=60, probe_s=0.3, watch_s=0.05, backoff_max_s=0.1)
GIVES_UP = LinkSettings(connect_s=2, probe_s=1, backoff_max_s=0.1)


def become(fake: FakeStore, role: str, *, online: int = 0) -> None:
    """From now on `fake` is a primary with replicas, or a replica."""
    replicas = "".join(f"slave{n}:ip=127.0.0.1,port={n},state=online,offset=0,lag=0\r\n" for n in range(online))
    info = f"redis_version:7.2.0\r\nrun_id:{fake.port}\r\nrole:{role}\r\n{replicas}"
    fake.greeting[b"INFO"] = bulk(info.encode())
    fake.greeting[b"HELLO"] = HELLO_REPLICA if role == "slave" else FakeStore().greeting[b"HELLO"]


def at(*fakes: FakeStore, **more: Any) -> Address:
    first, *others = [Host("127.0.0.1", fake.port) for fake in fakes]
    return Address(host=first.name, port=first.port, others=tuple(others), **more)


async def failure(address: Address, settings: LinkSettings = GIVES_UP) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with asyncio.timeout(30):
            await Link.open(address, {}, settings)
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)
    return caught.value


async def test_the_primary_is_used_and_the_replica_is_only_asked() -> None:
    async with FakeStore() as replica, FakeStore() as chosen:
        become(replica, "slave")
        become(chosen, "master")
        async with await Link.open(at(replica, chosen), {"s": b"return 1"}, QUICK) as link:
            assert await link.call("PING") == b"OK"
        assert [b"PING"] in chosen.commands
        assert {command[0] for command in replica.greetings} == {b"INFO"}, "no greeting, no script"


async def test_a_link_opens_while_the_first_host_is_down() -> None:
    async with FakeStore() as gone, FakeStore() as chosen:
        become(chosen, "master")
        address = at(gone, chosen)
        await gone.vanish()
        async with await Link.open(address, {}, QUICK) as link:
            assert await link.call("PING") == b"OK"


async def test_a_link_opens_while_a_host_is_silent() -> None:
    async with FakeStore(greeting={b"INFO": None}) as silent, FakeStore() as chosen:
        become(chosen, "master")
        async with await Link.open(at(silent, chosen), {}, QUICK) as link:
            assert await link.call("PING") == b"OK"


async def test_an_error_names_every_host_and_its_reason() -> None:
    async with FakeStore() as replica, FakeStore(greeting={b"INFO": None}) as silent, FakeStore() as odd:
        become(replica, "slave")
        odd.greeting[b"INFO"] = b"HTTP/1.1 400 Bad Request\r\n"
        nobody = Host("127.0.0.1", free_port())
        address = at(replica, silent, odd, user="ann", password="hunter2")
        error = await failure(replace(address, others=(*address.others, nobody)))
    assert isinstance(error, StoreUnavailable) and not error.unknown
    for reason in (
        f"{replica.port}: a replica;",
        f"{silent.port}: no answer within 1 s;",
        f"{odd.port}: its answer is not that of a Valkey or Redis server;",
        f"{nobody}: ",
        "promote a replica",
    ):
        assert reason in str(error)


async def test_a_password_that_all_hosts_refuse_is_said_at_once() -> None:
    def refuse(command: list[bytes]) -> bytes:
        return b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"

    async with FakeStore(refuse) as a, FakeStore(refuse) as b:
        error = await failure(at(a, b, password="hunter2"), LinkSettings(connect_s=60))
    assert isinstance(error, StoreRefused) and error.code == "WRONGPASS"
    assert str(a.port) in str(error) and str(b.port) in str(error)


async def test_a_server_that_does_not_know_auth_does_not_give_the_password_away() -> None:
    def quote(command: list[bytes]) -> bytes:
        return b"-ERR unknown command '%s', with args beginning with: '%s' \r\n" % (
            command[0],
            b"' '".join(command[1:]),
        )

    async with FakeStore(quote) as a, FakeStore(quote) as b:
        assert "unknown command 'AUTH'" in str(await failure(at(a, b, password="hunter2")))
        a.greeting[b"HELLO"] = quote([b"HELLO", b"3", b"AUTH", b"default", b"hunter2"])
        assert "does not know RESP3" in str(await failure(replace(a.address, password="hunter2")))


async def test_a_replica_that_is_promoted_while_a_service_starts_is_waited_for() -> None:
    async with FakeStore() as a, FakeStore() as b:
        become(a, "slave")
        become(b, "slave")
        opening = asyncio.create_task(Link.open(at(a, b), {}, QUICK))
        await asyncio.sleep(0.1)
        become(b, "master")
        async with await opening as link:
            assert await link.call("PING") == b"OK"
        assert [b"PING"] in b.commands


async def test_a_demoted_primary_is_left_although_nothing_is_written() -> None:
    async with FakeStore() as a, FakeStore() as b:
        become(a, "master")
        become(b, "slave")
        async with await Link.open(at(a, b), {}, QUICK) as link:
            become(a, "slave")
            become(b, "master")
            await until(lambda: link.reconnects == 1 and link.state == "connected", "the link to move", 30)
            assert await link.call("PING") == b"OK"
        assert [b"PING"] in b.commands


async def test_two_primaries_leave_the_link_where_it_is_and_are_reported_once() -> None:
    heard: list[TwoPrimaries] = []
    async with FakeStore() as a, FakeStore() as b:
        become(a, "slave")
        become(b, "master")
        async with await Link.open(at(a, b), {}, QUICK) as link:
            link.two_primaries.report_to(heard.append)
            become(a, "master", online=3)
            await until(lambda: heard, "two primaries to be reported", 30)
            b.cut()  # Also a new connection goes where the old one was.
            await until(lambda: link.reconnects == 1 and link.state == "connected", "the link to be back", 30)
            assert await link.call("PING") == b"OK"
            assert "refusing" in link._connector.trouble
            b.cut()
            await until(lambda: link.reconnects == 2, "the link to be back again", 30)
        assert [b"PING"] in b.commands and a.commands == []
        assert heard == [TwoPrimaries(f"127.0.0.1:{b.port}", (f"127.0.0.1:{a.port}",))]


async def test_the_primary_that_has_the_replicas_is_used() -> None:
    async with FakeStore() as a, FakeStore() as b:
        become(a, "master", online=1)
        become(b, "slave")
        async with await Link.open(at(a, b, replicas=1), {}, QUICK) as link:
            become(a, "master", online=0)
            become(b, "master", online=0)
            await until(lambda: link.two_primaries.count == 1, "two primaries to be found", 30)
            assert link.reconnects == 0, "neither has a replica: stay"
            become(b, "master", online=1)
            await until(lambda: link.reconnects == 1 and link.state == "connected", "the link to move", 30)
            assert await link.call("PING") == b"OK"
            await until(lambda: link.two_primaries.current is None, "the occurrence to end", 30)
        assert [b"PING"] in b.commands


async def test_a_service_does_not_start_between_two_primaries() -> None:
    async with FakeStore() as a, FakeStore() as b:
        become(a, "master")
        become(b, "master")
        error = await failure(at(a, b))
    assert isinstance(error, StoreRefused) and error.code == "TWOPRIMARIES"
    assert "REPLICAOF" in str(error) and str(a.port) in str(error) and str(b.port) in str(error)


async def test_a_primary_that_is_only_slow_to_answer_is_not_left() -> None:
    async with FakeStore() as a, FakeStore() as b:
        become(a, "master")
        become(b, "slave")
        async with await Link.open(at(a, b), {}, QUICK) as link:
            a.greeting[b"INFO"] = None
            become(b, "master")
            asked = len(b.greetings)
            await until(lambda: len(b.greetings) > asked + 3, "the hosts to be asked again", 30)
            assert link.reconnects == 0 and await link.call("PING") == b"OK"


async def test_nothing_runs_after_a_link_is_closed() -> None:
    before = asyncio.all_tasks()
    async with FakeStore() as a, FakeStore() as b:
        become(a, "master")
        become(b, "slave")
        await (await Link.open(at(a, b), {}, QUICK)).close()
        assert {task.get_name() for task in asyncio.all_tasks() - before if "watch" in task.get_name()} == set()


async def test_calls_that_could_not_be_sent_name_every_host() -> None:
    async with FakeStore() as a, FakeStore() as b:
        become(a, "master")
        become(b, "slave")
        async with await Link.open(at(a, b), {}, QUICK) as link:
            await a.vanish()
            await until(lambda: "no primary among" in link._connector.trouble, "the search to fail", 30)
            with pytest.raises(StoreUnavailable, match=f"{a.port}: .*; 127.0.0.1:{b.port}: a replica") as caught:
                await link.call("PING", deadline_s=0.01)
            assert not caught.value.unknown


async def test_a_seed_that_cannot_be_used_is_not_the_first_choice_again() -> None:
    async with FakeStore() as bad, FakeStore() as good:
        for fake, role in ((bad, b"replica"), (good, b"master")):
            fake.greeting[b"INFO"] = bulk(b"redis_version:7.2.0\r\nrole:master\r\ncluster_enabled:1\r\n")
            fake.greeting[b"HELLO"] = b"%2\r\n+role\r\n+" + role + b"\r\n+mode\r\n+cluster\r\n"
        async with await Link.open(at(bad, good), {}, QUICK) as link:
            assert await link.call("PING") == b"OK" and link.server.cluster
        bad.greeting[b"HELLO"] = None
        async with await Link.open(at(good, bad), {}, QUICK) as link:
            assert await link.call("PING") == b"OK"


async def test_the_other_seeds_are_waited_for_after_one_that_could_not_be_used() -> None:
    class Seeds(Hosts):
        async def _ask(self, host: Host) -> Answer:
            await asyncio.sleep(0.02 * (host.name == "slow"))
            return Answer(primary=True, cluster=True)

    address = Address(host="bad", others=(Host("slow", 6379),))
    seeds = Seeds(address, None, probe_s=30, watch_s=1)
    assert (await seeds.find()).host == "bad"
    seeds.failed(address.at(address.hosts[0]), StoreUnavailable("no", unknown=False))
    assert (await seeds.find()).host == "slow"
    seeds.failed(address.at(address.hosts[1]), StoreUnavailable("no", unknown=False))
    assert (await seeds.find()).host == "bad", "all have failed: begin again"
