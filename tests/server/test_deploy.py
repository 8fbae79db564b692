"""What is shipped beside the package fits it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml
from typer.testing import CliRunner

import millstream as ms
from millstream.cli.main import app
from millstream.server.metrics import prometheus

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\bmillstream_[a-z_]+\b", text))


def known_metrics() -> set[str]:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT)")
        db.sql("SELECT v FROM s", name="q")
        lines = prometheus(db, 1.0, 2).splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE")}


def test_the_dashboard_and_its_page_name_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    used = set().union(*(metric_names(target["expr"]) for panel in board["panels"] for target in panel["targets"]))
    assert used == known_metrics()
    assert metric_names((ROOT / "docs/deploy.md").read_text()) == known_metrics()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_commands_have_options_that_exist() -> None:
    known = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    for file in ("Containerfile", "millstream.service"):
        text = (DEPLOY / file).read_text()
        command = text[text.rindex("CMD [") :] if file == "Containerfile" else text[text.index("ExecStart=") :]
        used = set(re.findall(r"--[a-z]+", command))
        assert used and all(option in known for option in used), (file, used)


def test_the_image_copies_what_exists_and_installs_extras_that_exist() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    assert copied and all((ROOT / path).exists() for paths in copied for path in paths)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'/src\[([a-z,]+)\]'", text)
    assert {project["readme"], "constraints.txt", "src"} <= {path for paths in copied for path in paths}
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_files_that_others_read_are_whole() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"millstream", "prometheus", "grafana"}
    for name in ("prometheus", "datasource", "dashboards"):
        yaml.safe_load(compose["configs"][name]["content"])
    assert (DEPLOY / compose["configs"]["dashboard"]["file"]).exists()
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = [page for part in site["nav"] for pages in part.values() for page in pages]
    assert sorted(pages) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_console_has_what_its_build_names() -> None:
    """The bundles are committed: each has its licence, and is of the version that the build would take."""
    tools, vendor = ROOT / "tools" / "console", ROOT / "src" / "millstream" / "server" / "console" / "vendor"
    wanted = json.loads((tools / "package.json").read_text())["devDependencies"]
    locked = json.loads((tools / "package-lock.json").read_text())["packages"]
    told = (vendor / "LICENSES.md").read_text()
    built = dict(re.findall(r"^\| (\S+) (\d\S+) \|", told, re.M))
    assert {name: built[name] for name in wanted if name != "esbuild"} == {
        k: v for k, v in wanted.items() if k != "esbuild"
    }
    assert all(locked[f"node_modules/{name}"]["version"] == version for name, version in built.items())
    assert all(f"## {name}\n" in told for name in built) and not any("resolved" in each for each in locked.values())
    entries = {path.name for path in (tools / "entries").iterdir()}
    assert {path.name for path in vendor.glob("*.js")} == entries and (vendor / "uplot.css").exists()
    for path in vendor.glob("*.js"):
        assert not re.search(r"\bimport\s*[{\"'*]|https?://(?!www\.w3\.org/)", path.read_text()), path
