"""Offers: what is refused, and what is added so that ICE waits for the viewer's own packets."""

from __future__ import annotations

import pytest

from dhsched.room.offers import CODECS_MAX, LINE_CHARS_MAX, LINES_MAX, NOBODY, check_offer, without_addresses
from dhsched.web import Problem

HEAD = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
VIDEO = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=rtpmap:96 VP8/90000\r\n"
AUDIO = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:1\r\na=rtpmap:111 opus/48000/2\r\n"
HIDDEN = "a=candidate:1 1 udp 2113937151 6d0c1c32-7e4b.local 50000 typ host\r\n"
SHOWN = "a=candidate:2 1 udp 2113937151 10.0.0.7 50001 typ host generation 0\r\n"


def test_one_of_each_kind_or_one() -> None:
    for good in (HEAD + VIDEO, HEAD + AUDIO, HEAD + AUDIO + VIDEO):
        check_offer(good)
    for bad in (HEAD, HEAD + VIDEO + VIDEO, HEAD + VIDEO.replace("m=video", "m=application")):
        with pytest.raises(Problem):
            check_offer(bad)


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("a=rtpmap:97 VP8/90000\r\n", CODECS_MAX - 1),
        ("a=group:BUNDLE 0\r\n", CODECS_MAX - 1),
        ("a=x\r\n", LINES_MAX - 8),
        ("a=" + "x" * (LINE_CHARS_MAX - 3) + "\r\n", 7),
    ],
)
def test_an_offer_is_bounded_before_it_is_parsed(line: str, most: int) -> None:
    longer = line if len(line) < 99 else line.replace("x", "xx", 1)
    check_offer(HEAD + VIDEO + line * most)
    with pytest.raises(Problem, match=f"{LINES_MAX} lines of {LINE_CHARS_MAX} characters.*{CODECS_MAX} codecs"):
        check_offer(HEAD + VIDEO + line * most + longer)


def test_every_address_is_left_out() -> None:
    made = without_addresses(HEAD + SHOWN + VIDEO + HIDDEN + SHOWN + AUDIO + HIDDEN)
    assert ".local" not in made and "10.0.0.7" not in made


def test_each_part_gets_an_address_at_which_nobody_listens() -> None:
    made = without_addresses(HEAD + VIDEO + AUDIO)
    assert (
        made.count(NOBODY[0]) == 2
        and made.replace("".join(f"{line}\r\n" for line in NOBODY), "") == HEAD + VIDEO + AUDIO
    )
