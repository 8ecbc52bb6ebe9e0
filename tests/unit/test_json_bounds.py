"""What a JSON text may have in it, and that strings do not count."""

from __future__ import annotations

import msgspec
import pytest

from dhsched.client.stream import frames_of
from dhsched.links.json_bounds import CONTAINERS_MAX, EXPONENTS_MAX, SHORT_BYTES, STRINGS_MAX, VALUES_FREE, excess
from dhsched.links.messages import PUSHES_MAX

PAD = b" " * SHORT_BYTES


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"[" + b"{}," * (CONTAINERS_MAX - 2) + b"{}]", ""),
        (b"[" + b"{}," * (CONTAINERS_MAX - 1) + b"{}]", "objects and arrays"),
        (b"[" * (CONTAINERS_MAX + 1), "objects and arrays"),
        (b'"' + b"{[" * CONTAINERS_MAX + b'"', ""),
        (b'"' + b'\\"{' * CONTAINERS_MAX + b'"', ""),
        (b'"\\\\"' + b"{" * (CONTAINERS_MAX + 1), "objects and arrays"),
        (b'"' + b"{" * (CONTAINERS_MAX + 1), ""),
        (b"[" + b"1e308," * (EXPONENTS_MAX - 1) + b"1E308]", ""),
        (b"[" + b"1e308," * EXPONENTS_MAX + b"1E308]", "exponent"),
        (b"[" + b"true,false,null," * EXPONENTS_MAX + b"1e3]", ""),
        (b'["' + b"e" * 10_000 + b'"]', ""),
        (b"[" + b'"{",' * 1_000 + b"{}," * (CONTAINERS_MAX - 1) + b"{}]", "objects and arrays"),
        (b"[" + b'"{",' * 1_000 + b"{}," * (CONTAINERS_MAX - 2) + b"{}]", ""),
        (b"[" + b"257," * 10_000 + b"257]", "values"),
        (b"[" + b"0.12345," * 10_000 + b"0]", ""),
        (b'["' + b"," * 100_000 + b'"]', ""),
        (b'["' + b"," * 100_000 + b'",' + b"1," * (VALUES_FREE + 20_000) + b"1]", "values"),
        (b"[" + b'"e",' * STRINGS_MAX + b'""]', "strings"),
    ],
)
def test_only_what_is_outside_of_strings_counts(raw: bytes, found: str) -> None:
    assert (found in excess(raw + PAD)) if found else excess(raw + PAD) == ""


def test_frames_of_the_client_are_within_the_limits() -> None:
    items = [msgspec.json.encode({"n": n, "config": {"a": [[], [], {}, 1e300]}}) for n in range(5_000)]
    frames = [*frames_of(items)]
    assert all(not excess(each.encode()) and len(msgspec.json.decode(each)) <= PUSHES_MAX for each in frames)
    assert sum(len(msgspec.json.decode(each)) for each in frames) == 5_000
