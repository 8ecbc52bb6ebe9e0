"""The manifests of deploy/kubernetes: rendered by kustomize, valid for Kubernetes, and known to the roles."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import manifests
from tests.harness.containers import Container, settings_of_container, verb
from tests.harness.tree import ROOT

ROLES = ("dispatch", "infer", "room", "worker")
OF_THE_POD = {"metadata.name": "pod-0", "metadata.namespace": "dhsched"}


@pytest.fixture(params=manifests.VARIANTS)
def documents(request: pytest.FixtureRequest) -> tuple[manifests.Document, ...]:
    if shutil.which("kubectl") is None:
        pytest.skip("NOT TESTED: kustomize comes with kubectl, which is not on PATH")
    return manifests.rendered(request.param)


def variables(container: manifests.Document) -> dict[str, str]:
    """The variables of a container, those of its pod filled in."""
    found: dict[str, str] = {}
    for each in container.get("env", ()):
        value = each["value"] if "value" in each else OF_THE_POD[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


def role_pods(documents: tuple[manifests.Document, ...]) -> list[tuple[manifests.Document, manifests.Document, Any]]:
    """Spec, pod and settings of each Deployment or StatefulSet of a role."""
    found = []
    for name, spec, pod in manifests.pods(documents):
        [container] = pod["containers"]
        if container["args"][0] == "run":
            found.append((spec, pod, settings_of_container(Container(name, container["args"], variables(container)))))
    return found


def test_every_role_knows_its_variables_and_flags(documents: tuple[manifests.Document, ...]) -> None:
    assert {settings.ROLE for _, _, settings in role_pods(documents)} == {*ROLES}


def test_a_pod_has_longer_to_stop_than_its_role_takes(documents: tuple[manifests.Document, ...]) -> None:
    for _, pod, settings in role_pods(documents):
        takes_s = settings.drain_s + settings.teardown_s if settings.ROLE == "worker" else settings.stop_s
        assert pod["terminationGracePeriodSeconds"] > takes_s, settings.ROLE


def test_probes_ask_the_roles_own_listener(documents: tuple[manifests.Document, ...]) -> None:
    for _, pod, settings in role_pods(documents):
        [container] = pod["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        listens, tls = (settings.metrics_port, "") if settings.ROLE == "worker" else (settings.port, settings.tls_cert)
        for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
            asked = container[probe]["httpGet"]
            assert (ports[asked["port"]], asked["path"]) == (listens, path), settings.ROLE
            assert asked["scheme"] == ("HTTPS" if tls else "HTTP"), settings.ROLE


def test_a_worker_is_replaced_before_it_is_stopped(documents: tuple[manifests.Document, ...]) -> None:
    [spec] = [spec for spec, _, settings in role_pods(documents) if settings.ROLE == "worker"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budgets = {
        document["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        for document in documents
        if document["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {"dispatch", "infer", "worker"}


def test_every_pod_is_confined(documents: tuple[manifests.Document, ...]) -> None:
    """Of variables of Services too: DHSCHED_DISPATCH_PORT=tcp://... would be taken for a setting."""
    for name, _, pod in manifests.pods(documents):
        assert pod["enableServiceLinks"] is False, name
        assert pod["automountServiceAccountToken"] is (name == "dhsched-pod-costs"), name
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, name
        for container in pod["containers"]:
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] and confined["capabilities"] == {"drop": ["ALL"]}, name


def test_every_file_that_a_variable_names_is_mounted(documents: tuple[manifests.Document, ...]) -> None:
    for name, _, pod in manifests.pods(documents):
        [container] = pod["containers"]
        mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
        values = [*variables(container).values(), *container["args"]]
        paths = [value.removeprefix("file://") for value in values if re.match(r"(file://)?/", value)]
        assert [path for path in paths if not any(Path(path).is_relative_to(mount) for mount in mounted)] == [], name
        volumes = {volume["name"] for volume in pod["volumes"]} | ({"data"} if name == "dhsched-store" else set())
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes, name


def test_every_url_names_a_service_and_its_port(documents: tuple[manifests.Document, ...]) -> None:
    services = {
        document["metadata"]["name"]: document["spec"]["ports"][0]["port"]
        for document in documents
        if document["kind"] == "Service"
    }
    urls = [
        value
        for _, _, pod in manifests.pods(documents)
        for container in pod["containers"]
        for value in variables(container).values()
        if value.startswith("https://")
    ]
    assert len(urls) >= 5
    for url in urls:
        host, _, port = url.removeprefix("https://").partition(":")
        named = next(part for part in host.split(".") if part in services)
        assert services[named] == int(port), url


def needs_kubectl() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("NOT TESTED: kustomize comes with kubectl, which is not on PATH")


def test_kubernetes_accepts_every_document() -> None:
    """The example has every document; an overlay alone has no other."""
    needs_kubectl()
    assert sum(manifests.validate(document) for document in manifests.rendered("example")) >= 25


def test_a_workers_label_is_its_nodes() -> None:
    needs_kubectl()
    [pod] = [pod for name, _, pod in manifests.pods(manifests.rendered("gpu-nvidia")) if name == "dhsched-worker"]
    gpu = pod["nodeSelector"]["nvidia.com/gpu.product"]
    assert variables(pod["containers"][0])["DHSCHED_WORKER_LABELS"] == f"gpu={gpu}"


def test_the_autoscaler_scales_workers_by_a_metric_that_exists() -> None:
    needs_kubectl()
    documents = manifests.rendered("keda")
    [scaled] = [document["spec"] for document in documents if document["kind"] == "ScaledObject"]
    specs = {name: spec for name, spec, _ in manifests.pods(documents)}
    assert "replicas" not in specs[scaled["scaleTargetRef"]["name"]]
    [metric] = re.findall(r"dhsched_\w+", scaled["triggers"][0]["metadata"]["query"])
    assert f"`{metric}`" in (ROOT / "docs" / "reference" / "metrics.md").read_text()
    [pod] = [pod for name, _, pod in manifests.pods(documents) if name == "dhsched-pod-costs"]
    family, name, *options = pod["containers"][0]["args"]
    assert verb(family, name).make_context(name, options).params["every"] > 0


def test_the_operators_rules_are_the_alerts() -> None:
    assert manifests.RULE.read_text() == manifests.rule(), "run `make manifests`"
