"""`make manifests`: render the base with every overlay, validate it, and write the Prometheus Operator's rules.

kustomize comes with kubectl. Schemas of Kubernetes are those of the package kubernetes-validate; what KEDA and the
Prometheus Operator define has no schema here and is only rendered.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.harness.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = tuple(sorted(path.parent.name for path in (FOLDER / "overlays").glob("*/kustomization.yaml")))
VARIANTS = ("base", *OVERLAYS, "example")
"""The base alone, the base with each overlay alone, and the example, which has them all."""
VERSIONS = ("1.29", "1.37")
"""The oldest version of Kubernetes that the guide names, and the newest that has schemas."""
WITHOUT_SCHEMA = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1")
KEY_FILES = ("store-url", "store-auth.conf", "tls.crt", "tls.key", "ca.crt", "worker-key", "room-key")
RULE = FOLDER / "overlays" / "monitoring" / "prometheus-rule.yaml"
RENDER_S = 60.0

Document = dict[str, Any]


@cache
def rendered(variant: str) -> tuple[Document, ...]:
    """Return the documents of a variant, as `kubectl apply -k` would send them."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "kubernetes"
        shutil.copytree(FOLDER, tree)
        for name in KEY_FILES:
            (tree / "overlays" / "keys" / name).write_text(f"{name} of a test\n")
        if variant in OVERLAYS:
            lines = ("resources: [../base]", f"components: [../overlays/{variant}]")
            (tree / "one").mkdir()
            (tree / "one" / "kustomization.yaml").write_text("\n".join(("namespace: dhsched", *lines)))
        return kustomized(tree / ("one" if variant in OVERLAYS else variant))


def kustomized(folder: Path) -> tuple[Document, ...]:
    """Return the documents of a folder with a kustomization."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=RENDER_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.load_all(done.stdout, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def validate(document: Document) -> bool:
    """Raise an error if Kubernetes would refuse the document. Return whether it has a schema at all."""
    if document["apiVersion"] in WITHOUT_SCHEMA:
        return False
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)
    return True


def pods(documents: tuple[Document, ...]) -> Iterator[tuple[str, Document, Document]]:
    """Yield the name of each Deployment and StatefulSet, its spec, and the spec of its pods."""
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield document["metadata"]["name"], document["spec"], document["spec"]["template"]["spec"]


def rule() -> str:
    """Return the document of the Prometheus Operator with the rules of deploy/alerts.yml."""
    head = (
        "# Made from deploy/alerts.yml by `make manifests`.\napiVersion: monitoring.coreos.com/v1\n"
        "kind: PrometheusRule\nmetadata:\n  name: dhsched\nspec:\n"
    )
    text = (ROOT / "deploy" / "alerts.yml").read_text()
    return head + "".join(f"  {line}\n" for line in text[text.index("groups:") :].splitlines())


def main() -> None:
    RULE.write_text(rule())
    for variant in VARIANTS:
        documents = rendered(variant)
        known = sum(validate(document) for document in documents)
        print(f"{variant:12} {len(documents):3} documents, {known} valid for Kubernetes {' and '.join(VERSIONS)}, "
              f"{len(documents) - known} of operators, without a schema")  # fmt: skip


if __name__ == "__main__":
    main()
