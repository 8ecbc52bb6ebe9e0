"""`dhsched worker pod-costs`: the load of each Worker becomes the deletion cost of its pod, where it has changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dhsched.cli.pod_costs import ANNOTATION, Pods, cluster_api, costs_of
from dhsched.errors import BadSetting, DhschedError
from dhsched.web.running import listening


def worker(worker: str, load: int, status: str = "ready") -> dict[str, Any]:
    return {"worker": worker, "load": load, "status": status}


def test_the_cost_of_a_pod_is_the_load_of_its_worker() -> None:
    """A boot that is over does not count: the pod's container was started anew."""
    rows = [worker("w-a#3", 2), worker("w-b#1", 0), worker("w-a#1", 4, "lost"), worker("w-c#9", 1, "draining")]
    assert costs_of(rows) == {"w-a": 2, "w-b": 0, "w-c": 1}


class Api:
    """The one call of Kubernetes' API that the verb makes."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, str]] = []
        self.status = 200
        self.url = ""

    async def patch(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        body = json.loads(await request.read())
        if request.match_info["pod"] == "elsewhere":
            return web.Response(status=404)
        if self.status == 200:
            self.patched.append((request.match_info["pod"], body["metadata"]["annotations"][ANNOTATION]))
        return web.Response(status=self.status)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made, app = Api(), web.Application()
    app.router.add_patch("/api/v1/namespaces/dhsched/pods/{pod}", made.patch)
    async with listening(app, host="127.0.0.1", port=0, stop_s=0) as made.url:
        yield made


@pytest.fixture
def account(tmp_path: Path) -> Path:
    for name, text in {"token": "secret\n", "namespace": "dhsched"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def test_only_what_has_changed_is_patched(api: Api, account: Path) -> None:
    pods = Pods(api.url, account)
    assert await asyncio.to_thread(pods.update, {"w-a": 2, "w-b": 0, "elsewhere": 1}) == 3
    assert await asyncio.to_thread(pods.update, {"w-a": 2, "w-b": 1, "elsewhere": 1}) == 1
    assert await asyncio.to_thread(pods.update, {"w-b": 1}) == 0
    assert await asyncio.to_thread(pods.update, {"w-a": 2, "w-b": 1}) == 1, "a pod that came back is a new one"
    assert api.patched == [("w-a", "2"), ("w-b", "0"), ("w-b", "1"), ("w-a", "2")]


async def test_a_refusal_names_the_right_that_is_missing_and_is_tried_again(api: Api, account: Path) -> None:
    pods, api.status = Pods(api.url, account), 403
    with pytest.raises(DhschedError, match="patch on pods"):
        await asyncio.to_thread(pods.update, {"w-a": 2})
    api.status = 200
    assert await asyncio.to_thread(pods.update, {"w-a": 2}) == 1


async def test_an_api_that_does_not_answer(account: Path) -> None:
    with pytest.raises(DhschedError, match="does not answer"):
        await asyncio.to_thread(Pods("http://127.0.0.1:1", account).update, {"w-a": 2})


def test_outside_a_cluster_the_verb_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadSetting, match="--api"):
        cluster_api()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert cluster_api() == "https://[fd00::1]:443"
    with pytest.raises(BadSetting, match="service account"):
        Pods("http://127.0.0.1:1", tmp_path).update({"w-a": 2})
