"""docs/guides/deploy-kubernetes.md, followed literally, with a stand-in for the cluster: kubectl renders the manifests,
and their containers are processes, each at an address of its own."""

from __future__ import annotations

import base64
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests import manifests
from tests.harness.containers import Container, Network
from tests.harness.fleet import until, until_so
from tests.harness.guides import Shell, shell_blocks
from tests.harness.tree import ROOT

PAGE = "docs/guides/deploy-kubernetes.md"
READY_S = 60.0
DOMAIN = ".dhsched-infer.dhsched.svc"
"""Of the names by which Infer-Controllers are reached."""


class Cluster:
    """Pods of rendered manifests, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ["dhsched-store", "dhsched-dispatch", "dhsched-dispatch-1", "dhsched-room"]
        names += [f"dhsched-infer-{number}{DOMAIN}" for number in range(2)]
        self.workers = [f"dhsched-worker-{number}" for number in range(2)]
        self.network = Network([*names, *self.workers])
        self._secrets: dict[str, manifests.Document] = {}

    async def apply(self, documents: tuple[manifests.Document, ...], *, without: tuple[str, ...]) -> None:
        """Start every pod that does not run yet, except those of the components `without`."""
        self._secrets |= {each["metadata"]["name"]: each["data"] for each in documents if each["kind"] == "Secret"}
        for name, spec, pod in manifests.pods(documents):
            if name.removeprefix("dhsched-") in without:
                continue
            for number in range(spec["replicas"]):
                made = self.container(name, number, pod)
                if made.name not in self.network.started:
                    await self.network.start(made, self.folder / made.name)

    def container(self, name: str, number: int, pod: manifests.Document) -> Container:
        """Return the container of a pod: the first of Dispatch, the store and the room have their Service's name."""
        [container] = pod["containers"]
        component = name.removeprefix("dhsched-")
        own = {"infer": f"{name}-{number}{DOMAIN}", "worker": f"{name}-{number}"}.get(component)
        own = own or (f"{name}-{number}" if number else name)
        environment: dict[str, str] = {}
        of_the_pod = {"metadata.name": own.partition(".")[0], "metadata.namespace": "dhsched"}
        for each in container.get("env", ()):
            value = each.get("value") or of_the_pod[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for before, replaced in environment.items():
                value = value.replace(f"$({before})", replaced)
            environment[each["name"]] = value
        words = [word.replace("avatar", "echo") for word in container["args"]]  # Faces take more cores than a test has.
        return Container(own, words, environment, self._mounts(own, pod))

    def _mounts(self, name: str, pod: manifests.Document) -> dict[str, Path]:
        mounts: dict[str, Path] = {}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in pod["containers"][0]["volumeMounts"]:
            secret = volumes.get(mount["name"], {}).get("secret")
            if secret is None:
                continue
            folder = self.folder / name / mount["name"]
            folder.mkdir(parents=True, exist_ok=True)
            data = self._secrets[secret["secretName"]]
            for item in secret.get("items", [{"key": key, "path": key} for key in data]):
                text = base64.b64decode(data[item["key"]]).decode()
                for path, source in mounts.items():
                    text = text.replace(path, str(source))
                # The store's URL names its authority where the pod has it.
                text = text.replace("/etc/dhsched/tls", str(self.folder / name / "tls"))
                (folder / item["path"]).write_text(self.network.placed(text))
                (folder / item["path"]).chmod(secret["defaultMode"])
            mounts[mount["mountPath"]] = folder
        return mounts


@pytest.mark.release
@pytest.mark.timeout(300)
async def test_a_deployment_on_kubernetes(tmp_path: Path) -> None:
    for tool in ("kubectl", "openssl"):
        if shutil.which(tool) is None:
            pytest.skip(f"NOT TESTED: the guide needs {tool}, which is not on PATH")
    shutil.copytree(ROOT / "deploy" / "kubernetes", tmp_path / "deploy" / "kubernetes")
    cluster = Cluster(tmp_path / "pods")
    addresses = cluster.network.addresses
    infers = ",".join(f"IP:{address}" for name, address in addresses.items() if name.endswith(DOMAIN))
    certified = {
        f"DNS:{name}": f"IP:{addresses[name]}" for name in ("dhsched-store", "dhsched-dispatch", "dhsched-room")
    }
    asked = tmp_path / "asked"
    inside = tmp_path / "inside"
    kubectl = f"""
case "$*" in
  "apply -k "*) echo "$@" >> {asked} ;;
  "rollout status deploy/dhsched-dispatch -n dhsched") ;;
  "exec deploy/dhsched-dispatch -n dhsched -- "*) shift 5; source {inside}; exec "$@" ;;
  *) echo "kubectl $*: unknown" >&2; exit 1 ;;
esac"""
    replaced = {
        f"DNS:*{DOMAIN}": infers,
        **certified,
        "https://dhsched-dispatch:": f"https://{addresses['dhsched-dispatch']}:",
        "alias d=": "shopt -s expand_aliases; alias d=",
    }
    shell = Shell(tmp_path / "shell", replaced, {"kubectl": kubectl})

    async def run(line: str) -> str:
        """Run a line in a copy of this repository, and start what it has applied."""
        said = await shell.run(f"cd {tmp_path}\n{line}")
        for words in asked.read_text().splitlines() if asked.exists() else ():
            documents = manifests.kustomized(tmp_path / words.split()[2])
            await cluster.apply(documents, without=("worker", "room") if "!=worker" in words else ())
            [dispatch] = [
                cluster.container(name, 0, pod)
                for name, _, pod in manifests.pods(documents)
                if name == "dhsched-dispatch"
            ]
            await cluster.network.started[dispatch.name].until_ready()
            variables = cluster.network.environment(dispatch, tmp_path)
            inside.write_text("".join(f"export {name}={value}\n" for name, value in variables.items()))
        asked.unlink(missing_ok=True)
        return said

    try:
        [secrets] = shell_blocks(PAGE, "Secrets")
        await run(secrets)
        mine, starts = shell_blocks(PAGE, "Start")
        await run(mine)
        for line in starts.splitlines():
            await run(line)
        assert {*cluster.network.started} == {*addresses}
        [works] = shell_blocks(PAGE, "See that it works")
        admin, alias, *lines = works.splitlines()
        await run(admin)
        for line in lines[:2]:
            await run(f"{alias}\n{line}")
        both = partial(run, f"{alias}\n{lines[2]}")
        await until_so(both, lambda said: all(f"{name}#" in said for name in cluster.workers), "both Workers", READY_S)
        for line in lines[3:]:
            await run(f"{alias}\n{line}")
        pods = [cluster.network.started[name] for name in cluster.workers]
        await until(lambda: any(pod.consumed("hello") for pod in pods), "the words", READY_S)
    finally:
        await cluster.network.stop()
