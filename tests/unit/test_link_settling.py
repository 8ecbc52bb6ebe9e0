"""Settled replies: what is told when, what is unknown, and what goes at once; the store says what each test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from dhsched.errors import StoreError, StoreIncompatible, StoreRefused, StoreUnavailable
from dhsched.store.link.link import Link
from dhsched.store.link.settling import Required, Result, Settle, judge
from tests.harness.fake_primary import HOME, PATIENT, READONLY, SCRIPTS, AtHome, Primary
from tests.harness.fake_store import FakeStore, bulk, push

SETTLE = Settle(writes="settle", compares="same_home")
BATCH = ["settle", "WAIT", "same_home"]


@asynccontextmanager
async def settled(
    primary: Primary, *, replicas: int = 1, fsync: bool = False, **settings: Any
) -> AsyncIterator[tuple[FakeStore, Link]]:
    """A link whose replies are settled, and the store that it is connected to."""
    async with FakeStore(primary) as fake:
        address = replace(fake.address, replicas=replicas, fsync=fsync)
        opening = Link.open(address, SCRIPTS, replace(PATIENT, **settings), slot_key="k", entry=AtHome(), settle=SETTLE)
        async with await opening as link:
            yield fake, link


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # It may depend on anything.
            await asyncio.sleep(0.005)


def place(link: Link, word: str, **more: Any) -> "asyncio.Future[Any]":
    return link.run("place", ["k"], [word], **more)


async def unavailable(call: "asyncio.Future[Any]") -> StoreUnavailable:
    done, _ = await asyncio.wait([call], timeout=60)
    assert done, "the call hangs"
    error = call.exception()
    assert isinstance(error, StoreUnavailable), error or call.result()
    return error


async def answered(link: Link, count: int) -> None:
    """Wait until this many calls have a reply that is not passed on."""
    await eventually(lambda: link.settling is not None and len(link.settling.answered) == count)


def expire(link: Link, call: "asyncio.Future[Any]") -> None:
    """Let the deadline of a call that has a reply pass now, so that no machine is too slow for the reply."""
    assert link.settling is not None
    (found,) = [each for each, _ in link.settling.answered if each.future is call]
    found.deadline = asyncio.get_running_loop().time()
    link._sweep_no_later_than(found.deadline)


# -- when a reply is passed on -----------------------------------------------------------------------------------


async def test_a_batch_goes_out_in_one_write_with_what_settles_it() -> None:
    primary = Primary()
    async with settled(primary) as (fake, link):
        reads = fake.reads
        assert await asyncio.gather(*(place(link, str(n)) for n in range(3))) == [b"0", b"1", b"2"]
        assert fake.reads == reads + 1
        assert primary.names == ["place"] * 3 + BATCH
        settle, wait, compare = fake.commands[-3:]
        assert (settle[2:], wait, compare[2:]) == (
            [b"1", b"k", b"h1"],
            [b"WAIT", b"1", b"800"],
            [b"1", b"k", b"h1"],
        ), "the scripts name the home"


async def test_replies_wait_until_they_are_settled_and_are_told_in_order() -> None:
    primary, told = Primary(waited=None), list[str]()
    async with settled(primary) as (fake, link):
        calls = [place(link, word, read=lambda reply: told.append(reply.decode())) for word in "abc"]
        await answered(link, 3)
        assert (told, [call.done() for call in calls], link.in_flight) == ([], [False] * 3, 5)
        primary.unblock(fake)
        await asyncio.gather(*calls)
        assert (told, link.in_flight, link.late_replies) == ([*"abc"], 0, 0)


async def test_one_batch_is_in_flight_and_what_comes_meanwhile_is_not_sent() -> None:
    primary = Primary(waited=None)
    async with settled(primary) as (fake, link):
        first = place(link, "a")
        await answered(link, 1)
        second, given_up = place(link, "b"), place(link, "never", deadline_s=0.05)
        error = await unavailable(given_up)
        assert not error.unknown and "never" not in str(fake.commands) and "not settled yet" in str(error)
        assert primary.names == ["place", *BATCH]
        primary.unblock(fake)
        assert [await first, await second] == [b"a", b"b"]
        assert primary.names == ["place", *BATCH] * 2, "what was given up is never sent"


async def test_callers_that_are_told_go_along_in_the_next_batch() -> None:
    primary = Primary(waited=None)
    async with settled(primary) as (fake, link):

        async def twice() -> None:
            await place(link, "a")
            await place(link, "b")

        running = [asyncio.create_task(twice()) for _ in range(3)]
        await answered(link, 3)
        other = place(link, "c")
        await asyncio.sleep(0)
        primary.unblock(fake)
        await asyncio.gather(other, *running)
        assert primary.names == ["place"] * 3 + BATCH + ["place"] * 4 + BATCH


async def test_a_reply_that_cannot_be_read_concerns_only_its_caller() -> None:
    async with settled(Primary()) as (_, link):
        bad, good = place(link, "a", read=lambda _: 1 / 0), place(link, "b")
        assert await good == b"b"
        with pytest.raises(ZeroDivisionError):
            await bad


async def test_without_replicas_nothing_is_settled() -> None:
    primary = Primary()
    async with settled(primary, replicas=0) as (_, link):
        assert link.settling is None and await place(link, "a") == b"a"
        assert primary.names == ["place"]


# -- when it is unknown ------------------------------------------------------------------------------------------


async def test_too_few_replicas_leave_every_call_unknown() -> None:
    primary = Primary(waited=b":1\r\n")
    async with settled(primary, replicas=2) as (_, link):
        errors = [await unavailable(call) for call in [place(link, "a"), link.call("HSET", "x")]]
        assert all(error.unknown for error in errors)
        assert "place ran on store redis://127.0.0.1" in str(errors[0])
        assert "1 of 2 replicas had its batch within 800 ms: start or repair the missing replicas" in str(errors[0])
        assert "same operation id" in str(errors[0])
        settling = link.settling
        assert settling is not None and settling.last is not None and settling.unsettled_s is not None
        assert (settling.last.replicas, settling.last.settled, settling.unsettled_calls) == (1, False, 2)
        assert settling.trouble.startswith("the store's answers are unsettled for ") and link.reconnects == 0
        primary.waited = b":2\r\n"
        assert await place(link, "a") == b"a"
        assert not settling.trouble and sum(settling.seconds.counts) == 1


@pytest.mark.parametrize("reply", [HOME, READONLY])
async def test_another_name_behind_wait_leaves_the_batch_unknown(reply: bytes) -> None:
    async with settled(Primary(same_home=[reply])) as (_, link):
        error = await unavailable(place(link, "a"))
        assert error.unknown and "the comparison that settles its batch was refused" in str(error)
        assert await place(link, "a") == b"a"
        assert link.reconnects == 1, "the link greets anew"


async def test_a_home_that_ended_in_the_middle_of_a_batch() -> None:
    """What ran before it is unknown; what was refused did not run, and runs in the next home, in order."""
    primary = Primary(place=[bulk(b"ran"), HOME, HOME], settle=[HOME], same_home=[HOME])
    async with settled(primary) as (_, link):
        ran, *refused = [place(link, word) for word in "abc"]
        error = await unavailable(ran)
        assert error.unknown and "restarted or failed over" in str(error)
        assert await asyncio.gather(*refused) == [b"b", b"c"]
        assert link.reconnects == 1 and primary.names == ["place"] * 3 + BATCH + ["place"] * 2 + BATCH


async def test_replicas_of_a_home_that_ended_are_not_waited_for() -> None:
    primary = Primary(settle=[HOME], waited=None)
    async with settled(primary) as (_, link):
        sent = place(link, "a")
        await eventually(lambda: primary.names)
        primary.waited = b":1\r\n"  # From now on; the one that was sent stays blocked.
        assert (await unavailable(sent)).unknown
        assert await place(link, "a") == b"a" and link.reconnects == 1


async def test_what_was_refused_is_told_at_once() -> None:
    primary = Primary(place=[b"-OOM command not allowed\r\n"], waited=None)
    async with settled(primary) as (fake, link):
        refused, other = place(link, "a"), place(link, "b")
        with pytest.raises(StoreRefused, match="OOM"):
            await refused
        assert not other.done()
        primary.unblock(fake)
        assert await other == b"b"


async def test_the_deadline_of_a_call_that_waits_to_be_told_counts() -> None:
    primary = Primary(waited=None)
    async with settled(primary) as (fake, link):
        short, long = place(link, "a"), place(link, "b")
        await answered(link, 2)
        expire(link, short)
        error = await unavailable(short)
        assert error.unknown and "its deadline passed before it was settled" in str(error)
        assert not long.done()
        primary.unblock(fake)  # Late for one of them.
        assert await long == b"b"
        assert (link.late_replies, link.reconnects, link.in_flight) == (1, 0, 0)


async def test_a_server_that_never_answers_wait_is_left() -> None:
    primary = Primary(waited=None)
    async with settled(primary, deadline_s=0.05, dead_after_s=0.05, settle_ms=10) as (_, link):
        assert (await unavailable(place(link, "a"))).unknown
        primary.waited = b":1\r\n"
        await eventually(lambda: link.reconnects == 1)
        assert await place(link, "b", deadline_s=60) == b"b"


async def test_a_lost_connection_leaves_the_batch_unknown() -> None:
    primary = Primary(waited=None)
    async with settled(primary) as (fake, link):
        sent = place(link, "a")
        await answered(link, 1)
        unsent = place(link, "b")
        primary.waited = b":1\r\n"
        fake.cut()
        error = await unavailable(sent)
        assert error.unknown and "the connection was lost before it was settled" in str(error)
        assert await unsent == b"b", "it was not sent: it goes with the next connection"


async def test_close_leaves_the_batch_unknown() -> None:
    async with settled(Primary(waited=None)) as (_, link):
        sent = place(link, "a")
        await answered(link, 1)
        unsent = place(link, "b")
        await link.close()
        assert (await unavailable(sent)).unknown and not (await unavailable(unsent)).unknown


async def test_scripts_that_the_server_forgot_are_loaded_again() -> None:
    gone = b"-NOSCRIPT No matching script.\r\n"
    async with settled(Primary(place=[bulk(b"ran"), gone], settle=[gone], same_home=[gone])) as (fake, link):
        loads = [command for command in fake.greetings if command[0] == b"SCRIPT"]
        ran, forgotten = link.call("HSET", "x"), place(link, "b")
        assert (await unavailable(ran)).unknown and await forgotten == b"b"
        assert [command for command in fake.greetings if command[0] == b"SCRIPT"] == loads * 2


async def test_a_slot_that_is_being_moved_is_waited_for() -> None:
    moving = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
    async with settled(Primary(place=[moving] * 4, settle=[moving] * 3, same_home=[moving] * 3)) as (_, link):
        calls = [place(link, "a"), place(link, "b")]
        assert await asyncio.gather(*calls) == [b"a", b"b"]


# -- what goes at once -------------------------------------------------------------------------------------------


async def test_subscriptions_and_messages_are_not_settled() -> None:
    primary, heard = Primary(waited=None), list[bytes]()
    async with settled(primary) as (fake, link):
        await link.subscribe("c", lambda _channel, message: heard.append(message))
        assert fake.commands[-1] == [b"SSUBSCRIBE", b"c"], "nothing behind it"
        call = place(link, "a")
        await answered(link, 1)
        fake.say(push(b"smessage", b"c", b"m"))
        await eventually(lambda: heard == [b"m"])
        assert not call.done()
        primary.unblock(fake)
        assert await call == b"a"


# -- on disk -----------------------------------------------------------------------------------------------------


async def test_with_fsync_replicas_must_have_it_on_disk() -> None:
    primary = Primary(waited=b"*2\r\n:1\r\n:1\r\n", fsync=True)
    async with settled(primary, fsync=True, settle_ms=70) as (fake, link):
        assert await place(link, "a") == b"a"
        assert fake.commands[-3:-1] == [[b"WAIT", b"1", b"35"], [b"WAITAOF", b"1", b"1", b"35"]]
        primary.waited = b"*2\r\n:1\r\n:0\r\n"
        assert "0 of 1 replicas had its batch on disk within 70 ms" in str(await unavailable(place(link, "a")))
        primary.waited = b"*2\r\n:0\r\n:1\r\n"
        assert "the primary has not had its batch on disk" in str(await unavailable(place(link, "a")))


HOME_REFUSAL = StoreRefused("...", code="HOME", reply="HOME h2")


@pytest.mark.parametrize(
    ("required", "answers", "replicas", "reason"),
    [
        (Required(1, False, 800), (1, 1, b"h1"), 1, ""),
        (Required(1, False, 800), (1, 2, b"h1"), 2, ""),
        (Required(2, False, 800), (1, 1, b"h1"), 1, "1 of 2 replicas"),
        (Required(1, False, 800), (HOME_REFUSAL, 1, b"h1"), 0, "the write that"),
        (Required(1, False, 800), (1, HOME_REFUSAL, b"h1"), 0, "WAIT that"),
        (Required(1, False, 800), (1, 1, HOME_REFUSAL), 0, "the comparison that"),
        (Required(0, True, 800), (1, [1, 0], b"h1"), 0, ""),
        (Required(0, True, 800), (1, [0, 0], b"h1"), 0, "the primary has not had"),
        (Required(1, True, 800), (1, 1, [1, 0], b"h1"), 0, "0 of 1 replicas"),
        (Required(1, True, 800), (1, 0, [1, 1], b"h1"), 1, ""),
        (Required(1, True, 800), (1, HOME_REFUSAL, [1, 1], b"h1"), 0, "WAIT that"),
    ],
)
def test_when_a_batch_is_settled(required: Required, answers: tuple[Any, ...], replicas: int, reason: str) -> None:
    result = judge(required, answers, 0.5)
    assert result == Result(replicas, 0.5, result.reason) and result.settled == (not reason)
    assert result.reason.startswith(reason)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (b"%2\r\n+appendonly\r\n+yes\r\n+appendfsync\r\n+everysec\r\n", "appendonly yes and appendfsync everysec"),
        (b"%2\r\n+appendonly\r\n+no\r\n+appendfsync\r\n+always\r\n", "appendonly no and appendfsync always"),
        (b"%0\r\n", "appendonly unknown and appendfsync unknown"),
        (b"-ERR unknown command 'CONFIG', with args beginning with: 'GET'\r\n", "redis 7.2.0, which cannot do"),
    ],
)
async def test_fsync_is_refused_where_the_file_is_not_written_always(config: bytes, words: str) -> None:
    with pytest.raises(StoreIncompatible, match=words) as caught:
        async with settled(Primary(config=config), fsync=True, connect_s=60.0):
            pass
    assert "fsync=1 out of" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fsync", "reply", "kind", "words"),
    [
        (True, b"-ERR unknown command 'WAITAOF', with args beginning with: '0'\r\n", StoreIncompatible, "Redis 7.2"),
        (True, b"-NOPERM User ann has no permissions\r\n", StoreRefused, "allow this command"),
        (False, b"-NOPERM User ann has no permissions\r\n", StoreRefused, "allow this command"),
    ],
)
async def test_a_server_on_which_nothing_can_be_settled_is_refused(
    fsync: bool, reply: bytes, kind: type[StoreError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        async with settled(Primary(tried=reply), fsync=fsync):
            pass


async def test_a_link_that_only_reads_settles_nothing_and_asks_for_nothing() -> None:
    async with FakeStore() as fake:
        address = replace(fake.address, replicas=2, fsync=True)
        async with await Link.open(address, {}, PATIENT) as link:
            assert link.settling is None and await link.call("GET", "k") == b"OK"
        assert fake.commands == [[b"GET", b"k"]]
