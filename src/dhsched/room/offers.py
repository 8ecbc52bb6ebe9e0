"""A viewer's SDP offer, checked and cleaned. Pure.

A viewer need not send its address: its first packet shows it. So the page sends its offer before the browser has
gathered any address, and addresses in an offer are removed: ICE would send checks to each of them for half a minute,
and anybody who posts an offer could aim the checks at a third party. But ICE fails at once on an offer without any
address. So each part gets an address at which nobody listens: its checks go nowhere, on this machine, until the
viewer's own have arrived.
"""

from __future__ import annotations

from aiortc.sdp import SessionDescription

from dhsched.web import Problem

CANDIDATE = "a=candidate:"
LINES_MAX = 600  # An offer with more lines is refused before it is parsed; a browser's has about 250.
LINE_CHARS_MAX = 4_096  # The same for the length of a line; a browser's are a few hundred.
MEDIA_MAX = 16  # The same for `m=`, which begins a part and may be in other lines by chance.
CODECS_MAX = 128  # The same for codecs and groups, which are large in memory; a browser offers about 60.
LARGE = ("a=rtpmap:", "a=group:", "a=msid-semantic:")
NOBODY = (f"{CANDIDATE}1 1 udp 1 127.0.0.1 9 typ host", f"{CANDIDATE}2 1 udp 1 ::1 9 typ host")


def check_offer(offer: str) -> list[str]:
    """Return the kinds of media offered: one video, one audio, or both. Raise Problem for other kinds or repeated ones,
    and whatever the parser raises if the offer cannot be parsed."""
    if (
        offer.count("\n") > LINES_MAX
        or offer.count("m=") > MEDIA_MAX
        or sum(map(offer.count, LARGE)) > CODECS_MAX
        or max(map(len, offer.split("\n"))) > LINE_CHARS_MAX
    ):
        lines = f"{LINES_MAX} lines of {LINE_CHARS_MAX} characters"
        raise Problem(
            "TOO_LARGE", f"an offer has at most {lines}, {MEDIA_MAX} times `m=`, and {CODECS_MAX} codecs and groups"
        )
    media = [each.kind for each in SessionDescription.parse(without_addresses(offer)).media]
    if not media or len(media) != len({*media}) or not {*media} <= {"audio", "video"}:
        raise Problem("BAD_REQUEST", f"an offer must have one video, one audio, or both; this one has {media}")
    return media


def without_addresses(offer: str) -> str:
    """Return the offer without its addresses, and with one address in each part at which nobody listens."""
    parts: list[list[str]] = [[]]
    for line in offer.splitlines():
        if line.startswith("m="):
            parts.append([])
        if not line.startswith(CANDIDATE):
            parts[-1].append(line)
    for part in parts[1:]:
        part += NOBODY
    return "".join(f"{line}\r\n" for part in parts for line in part)
