"""The alert rules: what promtool thinks of them, and that every metric in them exists."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "alerts.yml"
METRIC = re.compile(r"\bdhsched_[a-z_]+")
DERIVED = re.compile(r"_(bucket|count|sum)$")


def rules() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_rule_says_what_to_do() -> None:
    for rule in rules():
        annotations, labels = rule["annotations"], rule["labels"]
        assert isinstance(annotations, dict) and {"summary", "remedy"} <= annotations.keys(), rule["alert"]
        assert isinstance(labels, dict) and labels["severity"] in ("page", "ticket"), rule["alert"]


def test_every_rule_has_its_section_of_the_runbook_and_no_section_is_left_over() -> None:
    page = (ROOT / "docs" / "guides" / "runbook.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert [*sections] == [rule["alert"] for rule in rules()], "one section for each alert, in the order of the rules"
    for rule in rules():
        name, annotations, labels = str(rule["alert"]), rule["annotations"], rule["labels"]
        assert isinstance(annotations, dict) and isinstance(labels, dict)
        assert annotations["runbook"] == f"docs/guides/runbook.md#{name.lower()}"
        assert sections[name].startswith(f"*{labels['severity']}.*"), f"{name}: its severity is {labels['severity']}"


def test_every_metric_in_a_rule_exists_and_is_documented() -> None:
    source = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for rule in rules():
        for name in METRIC.findall(str(rule["expr"])):
            assert f'"{DERIVED.sub("", name)}"' in source, f"{rule['alert']}: nothing makes {name}"
        assert str(rule["alert"]) in documented, f"docs/reference/metrics.md: say what {rule['alert']} means"


def test_every_metric_is_documented() -> None:
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    made = {
        name
        for path in sorted((ROOT / "src" / "dhsched").rglob("*.py"))
        if "bench" not in path.parts
        for name in re.findall(r'"(dhsched_[a-z_]+)",\s', path.read_text())
    }
    assert made, "no metric found: this test looks for them in the wrong way"
    assert {name for name in made if f"`{name}`" not in documented} == set()


def test_every_counter_ends_in_total() -> None:
    """Figures by their name; what Prometheus' own classes count, by their class."""
    for path in sorted((ROOT / "src" / "dhsched").rglob("*.py")):
        counters = re.findall(r'\bCounter(?:MetricFamily)?\(\s*"(dhsched_[a-z_]+)"', path.read_text())
        assert [name for name in counters if not name.endswith("_total")] == [], path


def test_promtool_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("NOT TESTED with promtool: it is not on PATH (apt-get install prometheus)")
    done = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
