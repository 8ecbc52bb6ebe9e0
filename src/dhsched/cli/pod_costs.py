"""`dhsched worker pod-costs`: tells Kubernetes which Worker pods to remove first, those with the fewest lives.

When a Deployment gets smaller, Kubernetes removes the pods with the lowest annotation
`controller.kubernetes.io/pod-deletion-cost` first. Every Worker drains when it is removed, so no live is lost with any
choice; the cost saves moves. Kubernetes knows nothing of lives, so this verb copies each Worker's load into the
annotation of the pod that has the Worker's name. It needs a service account that may patch pods, and a key of role
reader.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from dhsched.cli.remote import URL, Url, all_pages
from dhsched.client.blocking import Blocking, finish
from dhsched.client.calls import NotAnswered, NotSent
from dhsched.errors import BadSetting, DhschedError

ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WORKERS_MAX = 10_000  # Of more Workers, only the first get a cost.
PATCH_S = 10.0  # A patch that Kubernetes does not answer for this long is tried again in the next round.
GONE = ("lost", "gone")


def costs_of(workers: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return the load of each Worker name, over its boots that are not lost or gone."""
    costs: Counter[str] = Counter()
    for worker in workers:
        if worker["status"] not in GONE:
            costs[worker["worker"].partition("#")[0]] += worker["load"]
    return costs


@dataclass(slots=True)
class Pods:
    """The pods of one namespace. `sent` is the cost that each pod has by now, as far as this process has set it."""

    api: str
    account: Path = ACCOUNT
    sent: dict[str, int] = field(default_factory=dict)

    def update(self, costs: Mapping[str, int]) -> int:
        """Set the cost of each pod whose cost has changed, and return how many that were. A Worker without a pod of its
        name runs elsewhere, and is not asked about again until its load changes."""
        changed = {name: cost for name, cost in costs.items() if self.sent.get(name) != cost}
        for name, cost in changed.items():
            self._patch(name, cost)
            self.sent[name] = cost
        for name in self.sent.keys() - costs.keys():
            del self.sent[name]
        return len(changed)

    def _patch(self, pod: str, cost: int) -> None:
        namespace = self._read("namespace")
        url = f"{self.api}/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod, safe='')}"
        body = json.dumps({"metadata": {"annotations": {ANNOTATION: str(cost)}}}).encode()
        # The token is read each time, because Kubernetes replaces it every hour.
        headers = {
            "Authorization": f"Bearer {self._read('token')}",
            "Content-Type": "application/merge-patch+json",
        }
        authority = self.account / "ca.crt"
        transport = Blocking(str(authority) if self.api.startswith("https") else "")
        try:
            reply = finish(transport.send("PATCH", url, body, headers, total_s=PATCH_S))
        except (NotSent, NotAnswered) as error:
            raise DhschedError(f"Kubernetes does not answer at {self.api} ({error.__cause__})") from error
        if reply.status not in (200, 404):
            raise DhschedError(
                f"Kubernetes refuses to patch pod {pod} of namespace {namespace} with status {reply.status}: the "
                "service account needs the verb patch on pods"
            )

    def _read(self, name: str) -> str:
        try:
            return (self.account / name).read_text().strip()
        except OSError as error:
            raise BadSetting(
                f"cannot read {self.account / name} ({error.strerror}): this verb runs in a pod with a service account"
            ) from None


def pod_costs(
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two rounds.")] = 15.0,
    once: Annotated[bool, typer.Option("--once", help="End after one round.")] = False,
    api: Annotated[
        str, typer.Option(help="Address of Kubernetes' API. [default: of the cluster that this process runs in]")
    ] = "",
    account: Annotated[
        Path, typer.Option(help="Folder with the token, authority and namespace of the service account.")
    ] = ACCOUNT,
    url: Url = URL,
) -> None:
    """Tell Kubernetes which Worker pods to remove first: those with the fewest lives. Runs until it is stopped."""
    pods = Pods(api or cluster_api(), account)
    while True:
        try:
            changed = pods.update(costs_of(all_pages(url, "workers", "workers", {}, WORKERS_MAX)))
            if changed or once:
                typer.echo(f"costs of {changed} pods set")
        except BadSetting:
            raise
        except DhschedError as error:
            if once:
                raise
            typer.echo(f"this round failed: {error}", err=True)
        if once:
            return
        time.sleep(every)


def cluster_api() -> str:
    """Return the address of the API of the cluster in which this process runs."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise BadSetting("KUBERNETES_SERVICE_HOST is not set: run this verb in a pod, or give --api")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
