"""What a viewer offers, checked and made fit. Pure.

A viewer need not say where it is: its first packet shows it. So the page sends its offer before the browser has
gathered any address, and addresses that hide behind a name (mDNS, which browsers use unless a page may record) are left
out, since finding out what they stand for takes a multicast that many networks drop. But ICE gives up at once on an
offer without any address. Then it is given one at which nobody listens: its checks run into nothing for half a minute,
by when the viewer's own have arrived.
"""

from __future__ import annotations

from aiortc.sdp import SessionDescription

from dhsched.web import Problem

CANDIDATE = "a=candidate:"
NOBODY = (f"{CANDIDATE}1 1 udp 1 127.0.0.1 9 typ host", f"{CANDIDATE}2 1 udp 1 ::1 9 typ host")


def check_offer(offer: str) -> None:
    """One video, one audio, or one of them. Whatever cannot be parsed raises what the parser raises."""
    media = [each.kind for each in SessionDescription.parse(offer).media]
    if not media or len(media) != len({*media}) or not {*media} <= {"audio", "video"}:
        raise Problem("BAD_REQUEST", f"an offer has one video and one audio, or one of them; this one has {media}")


def with_candidates(offer: str) -> str:
    """The offer with an address in each of its parts that can be tried without asking anybody."""
    parts: list[list[str]] = [[]]
    for line in offer.splitlines():
        if line.startswith("m="):
            parts.append([])
        if not hides(line):
            parts[-1].append(line)
    for part in parts[1:]:
        if not any(line.startswith(CANDIDATE) for line in part):
            part += NOBODY
    return "".join(f"{line}\r\n" for part in parts for line in part)


def hides(line: str) -> bool:
    words = line.split()
    return line.startswith(CANDIDATE) and len(words) > 4 and words[4].endswith(".local")
