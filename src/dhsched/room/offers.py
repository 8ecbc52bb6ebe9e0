"""What a viewer offers, checked and made fit. Pure.

A viewer need not say where it is: its first packet shows it. So the page sends its offer before the browser has
gathered any address, and the addresses that an offer does name are left out: ICE would send checks to each of them for
half a minute, and whoever posts an offer could aim those at anybody. But ICE gives up at once on an offer without any
address. So each part is given one at which nobody listens: its checks run into nothing, on this machine, until the
viewer's own have arrived.
"""

from __future__ import annotations

from aiortc.sdp import SessionDescription

from dhsched.web import Problem

CANDIDATE = "a=candidate:"
NOBODY = (f"{CANDIDATE}1 1 udp 1 127.0.0.1 9 typ host", f"{CANDIDATE}2 1 udp 1 ::1 9 typ host")


def check_offer(offer: str) -> list[str]:
    """The kinds that are offered: one video, one audio, or one of them. Whatever cannot be parsed raises what the
    parser raises."""
    media = [each.kind for each in SessionDescription.parse(offer).media]
    if not media or len(media) != len({*media}) or not {*media} <= {"audio", "video"}:
        raise Problem("BAD_REQUEST", f"an offer has one video and one audio, or one of them; this one has {media}")
    return media


def without_addresses(offer: str) -> str:
    """The offer with all its addresses left out, and in each of its parts one at which nobody listens."""
    parts: list[list[str]] = [[]]
    for line in offer.splitlines():
        if line.startswith("m="):
            parts.append([])
        if not line.startswith(CANDIDATE):
            parts[-1].append(line)
    for part in parts[1:]:
        part += NOBODY
    return "".join(f"{line}\r\n" for part in parts for line in part)
