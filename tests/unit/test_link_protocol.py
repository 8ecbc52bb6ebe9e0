"""The link against a store that misbehaves: each rule at the top of `link.py`, where a real server cannot show it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dhsched.errors import StoreOverloaded, StoreRefused, StoreUnavailable
from dhsched.store.link.link import Link, LinkSettings
from tests.harness.fake_store import OK, FakeStore, bulk, push
from tests.harness.linking import eventually

SCRIPTS = {"place": b"return 1", "pull": b"return 2"}
QUICK: dict[str, Any] = {"deadline_s": 60.0, "connect_s": 60.0, "backoff_first_s": 0.01, "backoff_max_s": 0.05}


@asynccontextmanager
async def linked(fake: FakeStore, **settings: Any) -> AsyncIterator[Link]:
    async with await Link.open(fake.address, SCRIPTS, LinkSettings(**(QUICK | settings))) as link:
        yield link


def silent(_command: list[bytes]) -> None:
    return None


def echo(command: list[bytes]) -> bytes:
    return bulk(command[-1])


async def error_of(future: "asyncio.Future[Any]", within_s: float = 60) -> Exception:
    """What `future` fails with. A hang is a failure of the test."""
    done, _ = await asyncio.wait([future], timeout=within_s)
    assert done, "the call hangs"
    error = future.exception()
    assert isinstance(error, Exception), future.result()
    return error


async def unavailable(future: "asyncio.Future[Any]") -> StoreUnavailable:
    error = await error_of(future)
    assert isinstance(error, StoreUnavailable)
    return error


# -- batches and order -------------------------------------------------------------------------------------------


async def test_the_commands_of_one_tick_go_out_in_one_write() -> None:
    async with FakeStore(echo) as fake, linked(fake) as link:
        reads = fake.reads
        replies = await asyncio.gather(*(link.call("ECHO", n) for n in range(100)))
        assert replies == [b"%d" % n for n in range(100)]
        assert fake.reads == reads + 1
        assert (link.calls, link.in_flight, link.late_replies) == (100, 0, 0)


async def test_replies_cut_into_single_bytes_are_put_together() -> None:
    async with FakeStore(silent) as fake, linked(fake) as link:
        calls = [link.call("A"), link.call("B")]
        await eventually(lambda: len(fake.commands) == 2)
        for byte in bulk(b"one \r\n two") + b"*2\r\n:7\r\n_\r\n":
            fake.say(bytes([byte]))
            await asyncio.sleep(0)
        assert await asyncio.gather(*calls) == [b"one \r\n two", [7, None]]


async def test_false_and_nested_errors_are_values() -> None:
    replies = itertools.chain([b"#f\r\n", b"*2\r\n-ERR inner\r\n:1\r\n"])
    async with FakeStore(lambda _: next(replies)) as fake, linked(fake) as link:
        assert await link.call("A") is False
        inner, one = await link.call("B")
        assert isinstance(inner, StoreRefused) and inner.code == "ERR" and one == 1


async def test_pushes_between_replies_take_no_reply_away() -> None:
    def chatty(command: list[bytes]) -> bytes:
        return push(b"smessage", b"c", command[-1]) + push(b"invalidate", b"x") + bulk(command[-1])

    heard: list[tuple[bytes, bytes]] = []
    async with FakeStore(chatty) as fake, linked(fake) as link:
        await link.subscribe("c", lambda channel, message: heard.append((channel, message)))
        assert await asyncio.gather(*(link.call("ECHO", n) for n in range(3))) == [b"0", b"1", b"2"]
    assert heard == [(b"c", b"0"), (b"c", b"1"), (b"c", b"2")]


async def test_a_subscriber_that_raises_hurts_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    def careless(_channel: bytes, _message: bytes) -> None:
        raise RuntimeError("careless")

    async with FakeStore(echo) as fake, linked(fake) as link:
        await link.subscribe(b"c", careless)
        call = link.call("ECHO", "x")
        fake.say(push(b"smessage", b"c", b"m"))
        assert await call == b"x"
        await eventually(lambda: "careless" in caplog.text)
        assert (link.state, link.reconnects) == ("connected", 0)


# -- deadlines ---------------------------------------------------------------------------------------------------


async def test_a_late_reply_is_consumed_in_its_place() -> None:
    async with FakeStore(silent) as fake, linked(fake) as link:
        late = link.call("SLOW", deadline_s=0.05)
        error = await unavailable(late)
        assert error.unknown and "SLOW" in str(error) and "may have run" in str(error)
        punctual = link.call("QUICK")
        await eventually(lambda: len(fake.commands) == 2)
        fake.say(b"+for slow\r\n+for quick\r\n")
        assert await punctual == b"for quick"
        assert (link.late_replies, link.reconnects) == (1, 0)


async def test_each_call_has_its_own_deadline() -> None:
    async with FakeStore(silent) as fake, linked(fake, deadline_s=30) as link:
        long = link.call("LONG")
        short = [link.call("SHORT", deadline_s=0.02 * n) for n in (3, 1, 2)]
        assert all([(await unavailable(call)).unknown for call in short])
        assert not long.done()


async def test_an_overdue_head_of_line_ends_the_connection() -> None:
    async with FakeStore(silent) as fake, linked(fake, deadline_s=0.05, dead_after_s=0.1) as link:
        assert (await unavailable(link.call("A"))).unknown
        fake.answer = echo
        await eventually(lambda: link.reconnects == 1)
        assert await link.call("ECHO", "again", deadline_s=60) == b"again"


async def test_a_caller_that_gave_up_does_not_shift_the_replies() -> None:
    async with FakeStore(silent) as fake, linked(fake) as link:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.call("A"), 0.02)
        after = link.call("B")
        await eventually(lambda: len(fake.commands) == 2)
        fake.say(b"+a\r\n+b\r\n")
        assert await after == b"b"
        assert link.late_replies == 1


# -- lost connections --------------------------------------------------------------------------------------------


async def test_a_call_that_was_sent_is_unknown_when_the_connection_dies() -> None:
    async with FakeStore(silent) as fake, linked(fake) as link:
        calls = [link.run("place", ["k"], [n]) for n in range(3)]
        await eventually(lambda: len(fake.commands) == 3)
        fake.cut()
        errors = [await unavailable(call) for call in calls]
        assert all(error.unknown for error in errors)
        assert "place" in str(errors[0]) and "same operation id" in str(errors[0])


async def test_a_reply_cut_in_the_middle_is_unknown() -> None:
    async with FakeStore(silent) as fake, linked(fake) as link:
        call = link.call("GET", "k")
        await eventually(lambda: len(fake.commands) == 1)
        fake.say(b"$100\r\nhalf of")
        await asyncio.sleep(0.05)
        fake.cut()
        assert (await unavailable(call)).unknown
        fake.answer = echo
        assert await link.call("ECHO", "whole") == b"whole"


async def test_a_call_that_was_never_sent_waits_for_the_next_connection() -> None:
    async with FakeStore(echo) as fake, linked(fake) as link:
        await fake.vanish()
        await eventually(lambda: link.state == "reconnecting")
        call = link.call("ECHO", "patience")
        await asyncio.sleep(0.1)
        assert not call.done()
        await fake.listen()
        assert await call == b"patience"
        assert (link.state, link.reconnects) == ("connected", 1)


async def test_a_call_reported_as_never_sent_is_never_sent() -> None:
    async with FakeStore(echo) as fake, linked(fake) as link:
        await fake.vanish()
        await eventually(lambda: link.state == "reconnecting")
        error = await unavailable(link.call("NEVER", deadline_s=0.05))
        assert not error.unknown and "was not sent" in str(error) and "onnect" in str(error)
        gone = link.call("CANCELLED")
        gone.cancel()
        await fake.listen()
        assert await link.call("ECHO", "after") == b"after"
        assert [command[0] for command in fake.commands] == [b"ECHO"]


async def test_garbage_ends_the_connection_and_the_next_one_works() -> None:
    async with FakeStore(lambda _: b"HTTP/1.1 400 Bad Request\r\n") as fake, linked(fake) as link:
        error = await unavailable(link.call("A"))
        assert error.unknown and "HTTP/1.1 400" in str(error)
        fake.answer = echo
        assert await link.call("ECHO", "x") == b"x"


async def test_an_answer_to_no_question_ends_the_connection() -> None:
    async with FakeStore(echo) as fake, linked(fake) as link:
        fake.say(OK)
        await eventually(lambda: link.reconnects == 1)
        assert await link.call("ECHO", "x") == b"x"


async def test_everything_is_said_again_on_a_new_connection_before_any_command() -> None:
    heard: list[bytes] = []
    async with FakeStore(echo) as fake, linked(fake) as link:
        await link.subscribe("c", lambda _channel, message: heard.append(message))
        fake.greetings.clear()
        fake.commands.clear()
        fake.cut()
        await eventually(lambda: link.reconnects == 1)
        assert await link.call("ECHO", "x") == b"x"
        assert [command[0] for command in fake.greetings] == [b"HELLO", b"INFO", b"SCRIPT", b"SCRIPT"]
        assert fake.commands == [[b"SSUBSCRIBE", b"c"], [b"ECHO", b"x"]]
        fake.say(push(b"smessage", b"c", b"m"))
        await eventually(lambda: heard == [b"m"])
        await link.unsubscribe("c")
        fake.cut()
        await eventually(lambda: link.reconnects == 2)
        assert fake.commands[2:] == [[b"SUNSUBSCRIBE", b"c"]]


async def test_close_tells_the_sent_from_the_unsent() -> None:
    async with FakeStore(silent) as fake:
        link = await Link.open(fake.address, {}, LinkSettings(**QUICK))
        sent = link.call("SENT")
        await eventually(lambda: len(fake.commands) == 1)
        unsent = link.call("UNSENT")
        await link.close()
        await link.close()
        assert (await unavailable(sent)).unknown
        assert not (await unavailable(unsent)).unknown
        assert not (await unavailable(link.call("AFTER"))).unknown
        assert link.state == "closed"


# -- what the server says ----------------------------------------------------------------------------------------


async def test_a_forgotten_script_is_loaded_and_run_again() -> None:
    def forgetful(command: list[bytes]) -> bytes:
        loaded = len(fake.greetings) == len(SCRIPTS)
        return bulk(command[-1]) if loaded else b"-NOSCRIPT No matching script.\r\n"

    async with FakeStore(forgetful) as fake, linked(fake) as link:
        fake.greetings.clear()
        calls = [link.run("place", ["k"], [n]) for n in range(5)]
        assert await asyncio.gather(*calls) == [b"%d" % n for n in range(5)]
        assert [command[2] for command in fake.greetings] == [b"return 1", b"return 2"]
        assert len(fake.commands) == 10


async def test_a_script_that_is_always_forgotten_is_refused_in_the_end() -> None:
    async with FakeStore(lambda _: b"-NOSCRIPT No matching script.\r\n") as fake, linked(fake) as link:
        error = await error_of(link.run("place", ["k"]))
        assert isinstance(error, StoreRefused) and error.code == "NOSCRIPT"
        assert len(fake.commands) == 4


async def test_an_error_reply_names_store_error_and_remedy() -> None:
    full = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    async with FakeStore(lambda _: full) as fake, linked(fake) as link:
        error = await error_of(link.call("SET", "k", "v"))
    assert isinstance(error, StoreRefused) and error.code == "OOM"
    assert str(error) == (
        f"store redis://127.0.0.1:{fake.port} refused: OOM command not allowed when used memory > 'maxmemory'; raise "
        "its maxmemory: nothing is evicted, by intent"
    )


async def test_a_primary_that_became_a_replica_is_left() -> None:
    def readonly(command: list[bytes]) -> bytes:
        return b"-READONLY You can't write against a read only replica.\r\n" if command[0] == b"SET" else OK

    async with FakeStore(readonly) as fake, linked(fake) as link:
        write, read = link.call("SET", "k", "v"), link.call("GET", "k")
        error = await error_of(write)
        assert isinstance(error, StoreRefused) and error.code == "READONLY"
        assert await read == b"OK"  # What was sent before is still answered, not unknown.
        await eventually(lambda: link.reconnects == 1)


async def test_moved_calls_are_run_where_the_slot_went() -> None:
    async with FakeStore(echo) as there, FakeStore() as here, linked(here) as link:
        here.answer = lambda _: b"-MOVED 7 127.0.0.1:%d\r\n" % there.port
        calls = [link.run("place", ["k"], [n]) for n in range(5)]
        assert await asyncio.gather(*calls) == [b"%d" % n for n in range(5)]
        assert (len(here.commands), len(there.commands)) == (5, 5)
        assert link.reconnects == 1


async def test_a_slot_that_is_moved_in_circles_is_an_error() -> None:
    async with FakeStore() as here:
        here.answer = lambda _: b"-MOVED 7 127.0.0.1:%d\r\n" % here.port
        async with linked(here) as link:
            error = await error_of(link.call("A"))
    assert isinstance(error, StoreRefused) and error.code == "MOVED"


async def test_a_channel_taken_away_is_subscribed_again() -> None:
    async with FakeStore(echo) as fake, linked(fake) as link:
        await link.subscribe("c", lambda *_: None)
        fake.say(push(b"sunsubscribe", b"c"))
        await eventually(lambda: link.reconnects == 1)
        assert fake.commands == [[b"SSUBSCRIBE", b"c"]] * 2


async def test_a_refused_subscription_raises_and_is_forgotten() -> None:
    async with FakeStore(echo, {b"SSUBSCRIBE": b"-NOPERM no permissions\r\n"}) as fake, linked(fake) as link:
        with pytest.raises(StoreRefused, match="NOPERM"):
            await link.subscribe("c", lambda *_: None)
        assert await link.call("ECHO", "x") == b"x"
        fake.cut()
        await eventually(lambda: link.reconnects == 1)


# -- bounds ------------------------------------------------------------------------------------------------------


async def test_calls_in_flight_are_bounded() -> None:
    async with FakeStore(silent) as fake, linked(fake, in_flight_max=3) as link:
        calls = [link.call("A") for _ in range(3)]
        error = await error_of(link.call("B"))
        assert isinstance(error, StoreOverloaded) and "3 of 3 calls" in str(error)
        await eventually(lambda: len(fake.commands) == 3)
        fake.say(OK * 3)
        await asyncio.gather(*calls)
        assert link.call("C") and link.in_flight == 1


async def test_bytes_that_the_socket_does_not_take_are_bounded() -> None:
    async with (
        FakeStore(echo) as fake,
        linked(fake, unsent_max_bytes=2_000_000, write_buffer_bytes=1000, deadline_s=30) as link,
    ):
        fake.reading.clear()
        blob = bytes(500_000)
        calls: list[asyncio.Future[Any]] = []
        refused: list[asyncio.Future[Any]] = []
        for _ in range(200):  # The kernel's buffers grow while they may: until nothing was taken three times in a row.
            call = link.call("ECHO", blob)
            await asyncio.sleep(0.02)
            refused = [*refused, call] if call.done() else []
            if not call.done():
                calls.append(call)
            if len(refused) == 3:
                break
        error, *_ = [await error_of(each) for each in refused]
        assert isinstance(error, StoreOverloaded) and "of 2000000 bytes unsent" in str(error)
        assert len(calls) > 3
        unsent = link.call("UNSENT", deadline_s=0.05)
        assert not (await unavailable(unsent)).unknown
        fake.reading.set()
        assert await asyncio.gather(*calls) == [blob] * len(calls)


async def test_a_setting_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="dead_after_s is 0"):
        LinkSettings(dead_after_s=0)
