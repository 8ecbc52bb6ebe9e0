"""A page of another origin, in a real browser, tries whatever a page can against an open deployment on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, async_playwright

from dhsched.bench.avatar_room import FLAGS, chromium
from dhsched.links.messages import Register, encode
from tests.browser.other_origin import page_elsewhere
from tests.harness.fleet import Fleet, Record
from tests.harness.theatre import theatre

TRY_ALL = """async ({dispatch, infer, room, register}) => {
  const found = {};
  const post = async (name, url, kind, body) => {
    try {
      const mode = kind === "text/plain" ? "no-cors" : "cors";
      const answer = await fetch(url, {method: "POST", mode, body, headers: kind ? {"Content-Type": kind} : {}});
      found[name] = answer.status;
    } catch (error) { found[name] = "refused"; }
  };
  const within = (trying) => Promise.race([trying, new Promise((done) => setTimeout(done, 5000))]);
  const open = (name, url, first) => within(new Promise((done) => {
    const socket = new WebSocket(url.replace("http", "ws"));
    socket.onopen = () => {
      found[name] = "open";
      if (first) socket.send(new Uint8Array(first)); else done(socket.close());
    };
    socket.onmessage = () => done(socket.close());
    socket.onclose = () => done();
    socket.onerror = () => { found[name] = found[name] || "refused"; done(); };
  }));
  const form = (url, name, value) => within(new Promise((done) => {
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.name = "hidden";
    const sent = document.body.appendChild(document.createElement("form"));
    Object.assign(sent, {action: url, method: "POST", enctype: "text/plain", target: "hidden"});
    const field = sent.appendChild(document.createElement("input"));
    Object.assign(field, {name, value});
    frame.onload = () => { if (frame.contentWindow.length === 0) done(); };
    sent.submit();
  }));
  await post("a key, unasked", `${dispatch}/v1/keys`, "text/plain", '{"role": "admin"}');
  await post("a key, asked", `${dispatch}/v1/keys`, "application/json", '{"role": "admin"}');
  await form(`${dispatch}/v1/keys`, '{"role": "admin", "note": "', '"}');
  await post("cordon", `${dispatch}/v1/workers/a%231/cordon`, "text/plain");
  await post("end", `${dispatch}/v1/lives/demo/end`, "text/plain");
  await post("push", `${infer}/v1/lives/demo/text`, "text/plain", '{"text": "evil"}');
  await post("say", `${room}/v1/lives/demo/text`, "text/plain", '{"text": "evil"}');
  await post("say as json", `${room}/v1/lives/demo/text`, "application/json", '{"text": "evil"}');
  await post("watch", `${room}/v1/lives/demo/whep`, "application/sdp", "v=0");
  await open("worker link", `${dispatch}/v1/workers/link`, register);
  await open("pull", `${infer}/v1/pull`);
  await open("stream", `${infer}/v1/lives/demo/stream`);
  await open("streams", `${infer}/v1/stream`);
  await open("publish", `${room}/v1/publish`);
  return found;
}"""
EMPTY = "<!doctype html><title>elsewhere</title><body>"
SAY = """async (url) => (await fetch(url, {
  method: "POST", body: '{"text": "hello"}', headers: {"Content-Type": "application/json"},
})).status"""


async def try_all(page: Page, urls: dict[str, str]) -> dict[str, Any]:
    register = [*encode([Register(name="evil", boot="b", pool="gpu", capacity=4)])]
    found: dict[str, Any] = await page.evaluate(TRY_ALL, {**urls, "register": register})
    return found


async def untouched(fleet: Fleet, worker: Record) -> None:
    """No key, no Worker, no item: all is as it was."""
    assert (await fleet.get("/v1/keys"))["keys"] == []
    workers = (await fleet.get("/v1/workers"))["workers"]
    assert [(each["worker"], each["status"]) for each in workers] == [("a#1", "ready")]
    assert (await fleet.get("/v1/lives/demo"))["state"] == "open" and "evil" not in worker.texts("demo")
    assert (await fleet.push("demo", "still there"))[1]["seq"] == 1, "nothing was pushed before"


async def test_a_page_of_another_origin_gets_nowhere(browser: Browser, tmp_path: Path) -> None:
    worker = Record()
    async with theatre(tmp_path) as at, page_elsewhere(EMPTY) as origin:
        await at.fleet.start_worker(worker, "a")
        await at.fleet.create("demo")
        page = await browser.new_page()
        await page.goto(origin)
        urls = {"dispatch": at.fleet.dispatch[0], "infer": at.fleet.infer[0], "room": at.url}
        found = await try_all(page, urls)
        # Of what a page sends without asking first it is not told the status: 0.
        unasked = {"a key, unasked": 0, "cordon": 0, "end": 0, "push": 0, "say": 0}
        assert found == dict.fromkeys(found, "refused") | unasked
        await untouched(at.fleet, worker)

        # The room's own page goes on, by whichever name of this machine.
        for own in (at.url, at.url.replace("127.0.0.1", "localhost")):
            await page.goto(f"{own}/live/demo")
            assert await page.evaluate(SAY, "/v1/lives/demo/text") == 200
        await page.goto(origin)
        await page.evaluate("(url) => { location.href = url; }", f"{at.url}/live/demo")
        await page.wait_for_url(f"{at.url}/live/demo")
        assert await page.evaluate(SAY, "/v1/lives/demo/text") in (200, 429), "a link may lead to it"


async def test_a_name_that_was_turned_to_this_machine_gets_nowhere(tmp_path: Path) -> None:
    """DNS rebinding: the browser believes that the page and the deployment are one origin."""
    path = chromium()
    if path is None:
        pytest.skip("NO BROWSER: DNS rebinding is not tested; install chromium or set DHSCHED_CHROMIUM")
    worker = Record()
    async with async_playwright() as playwright, theatre(tmp_path) as at:
        await at.fleet.start_worker(worker, "a")
        await at.fleet.create("demo")
        flags = [*FLAGS, "--host-resolver-rules=MAP rebound.example 127.0.0.1"]
        launched = await playwright.chromium.launch(executable_path=path, args=flags)
        try:
            page = await launched.new_page()
            urls = {"dispatch": at.fleet.dispatch[0], "infer": at.fleet.infer[0], "room": at.url}
            rebound = {role: f"http://rebound.example:{urlsplit(url).port}" for role, url in urls.items()}
            for url in rebound.values():
                answer = await page.goto(f"{url}/healthz")
                assert answer is not None and answer.status == 403
                found = await try_all(page, rebound)
                assert {"open", 200, 201}.isdisjoint(found.values()), found
            await untouched(at.fleet, worker)
        finally:
            await launched.close()
