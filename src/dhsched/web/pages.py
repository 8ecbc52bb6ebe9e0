"""Pages of a role: plain HTML, CSS and JavaScript, served as the files lie in the package. There is no build step.

The files are the same for everybody and hold no secret. A page may load and call its own origin alone, which its policy
tells the browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from aiohttp import web

from dhsched.web.problems import Problem

TYPES = {
    "json": "application/json",
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors "
)
"""The policy of each page: what it may load and do. The origins that may embed the page come behind it, or 'none'."""
HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Page:
    """The files of one folder of a package, and those that every page has (web/page), read once. `ancestors` are the
    origins that may embed the page, `frames` the origin that the page may embed. `made` are further files."""

    def __init__(
        self, package: str, folder: str, *, ancestors: str, frames: str = "", made: Mapping[str, bytes] | None = None
    ) -> None:
        embeds = f"; frame-src {frames}" if frames else ""
        self._headers = {**HEADERS, "Content-Security-Policy": POLICY + ancestors + embeds}
        folders = (resources.files("dhsched.web") / "page", resources.files(package) / folder)
        found = [each for there in folders for each in there.iterdir()]
        self._files = {each.name: each.read_bytes() for each in found if each.name.rpartition(".")[2] in TYPES}
        self._files |= made or {}

    def respond(self, name: str) -> web.Response:
        """Return one of the files."""
        kind = TYPES[name.rpartition(".")[2]]
        return web.Response(body=self._files[name], content_type=kind, charset="utf-8", headers=self._headers)

    async def file(self, request: web.Request) -> web.Response:
        """Serve the file that the path names."""
        if (name := request.match_info["name"]) not in self._files:
            return Problem("NOT_FOUND", f"the page has no file {name}").response()
        return self.respond(name)
