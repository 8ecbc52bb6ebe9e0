"""Tokens that anybody could send: each decoder refuses them as tokens, in bounded time."""

from __future__ import annotations

import base64
import logging
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.http_exceptions import BadStatusLine

from dhsched.access import api_tokens, viewer_tokens
from dhsched.access.api_tokens import TOKEN_CHARS_MAX
from dhsched.errors import BadToken
from dhsched.tokens import Tokens
from dhsched.web.logs import is_our_fault
from tests.harness.fuzz import CPU_S, CPU_S_PER_KB

SECRET = "s" * 32


def part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


HEAD = part(b'{"alg":"HS256","kid":"1"}')
SHAPES = {
    "empty": "",
    "dots": "." * TOKEN_CHARS_MAX,
    "no text": "\xff" * 100,
    "deep head": f"{part(b'[' * 1_500)}.a.a",
    "deep objects": part(b'{"a":' * 300) + ".a.a",
    "a list": f"{part(b'[]')}.a.a",
    "long number": part(b'{"kid":' + b"9" * 1_400 + b"}") + ".a.a",
    "most elements": part(b'{"kid":[' + b"0," * 700 + b"0]}") + ".a.a",
    "not UTF-8": f"{part(bytes([255]) * 1_000)}.a.a",
    "long payload": f"{HEAD}.{'a' * 1_900}.a",
    "too long": f"{HEAD}.{'a' * 100_000}.a",
    "too deep and too long": f"{part(b'[' * 100_000)}.a.a",
}


async def read_boot(token: str) -> object:
    async def read() -> None: ...

    ring = SimpleNamespace(secrets=lambda _: {"1": SECRET}, read=read)
    with pytest.raises(BadToken):
        await Tokens(cast(Any, ring)).read(token)
    return None


@pytest.mark.parametrize("shape", SHAPES)
async def test_fuzz_of_tokens(shape: str) -> None:
    token = SHAPES[shape]
    for _ in range(5):
        assert api_tokens.verify(token, {"1": SECRET}) is None
        assert viewer_tokens.verify(token, {}) is None
        assert viewer_tokens.kid_of(token) in ("", "1")
        assert await read_boot(token) is None


@pytest.mark.release
@pytest.mark.parametrize("shape", SHAPES)
async def test_fuzz_of_tokens_costs_little(shape: str) -> None:
    token, took_s = SHAPES[shape], []
    for _ in range(20):
        began = time.thread_time()
        api_tokens.verify(token, {"1": SECRET}), viewer_tokens.verify(token, {}), viewer_tokens.kid_of(token)
        await read_boot(token)
        took_s.append(time.thread_time() - began)
    assert min(took_s) < CPU_S + CPU_S_PER_KB * len(token) / 1e3


def test_a_head_that_cannot_be_parsed_is_not_logged() -> None:
    for error, logged in ((BadStatusLine("x" * 10_000), False), (RuntimeError("a bug"), True)):
        try:
            raise error
        except Exception:
            record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Error", (), sys.exc_info())
        assert is_our_fault(record) is logged
