"""The build hook: what it builds from, and that nothing stops an installation."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import partwise

ROOT = Path(partwise.__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not (ROOT / "hatch_build.py").exists(), reason="tests run on an installed copy"
)


@pytest.fixture
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path, hook: ModuleType) -> Path:
    """A repository whose client is two files."""
    client = tmp_path / hook.CLIENT
    (client / "src").mkdir(parents=True)
    (client / "package.json").write_text("{}", encoding="utf-8")
    (client / "package-lock.json").write_text("{}", encoding="utf-8")
    (client / "src" / "main.ts").write_text("let x = 1\n", encoding="utf-8")
    return tmp_path


def test_a_fingerprint_follows_the_sources_alone(repository: Path, hook: ModuleType) -> None:
    client = repository / hook.CLIENT
    first = hook.fingerprint(client)
    (client / "node_modules" / "x").mkdir(parents=True)
    (client / "node_modules" / "x" / "index.js").write_text("1", encoding="utf-8")
    (client / ".npmrc").write_text("fund=false", encoding="utf-8")
    (client / "src" / "main.ts").write_bytes(b"let x = 1\r\n")
    assert hook.fingerprint(client) == first, "line ends are no change"
    (client / "src" / "main.ts").rename(client / "src" / "other.ts")
    renamed = hook.fingerprint(client)
    (client / "src" / "other.ts").write_text("let x = 2\n", encoding="utf-8")
    assert len({first, renamed, hook.fingerprint(client)}) == 3


def test_nothing_is_done_while_no_source_has_changed(
    repository: Path, hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[list[str]] = []

    def run(step: list[str], client: Path, surroundings: dict[str, str]) -> None:
        steps.append(step)
        if "ci" in step:
            (client / "node_modules").mkdir(exist_ok=True)
        else:
            made = Path(step[step.index("--outDir") + 1])
            made.mkdir()
            (made / "index.html").write_text(str(len(steps)), encoding="utf-8")

    monkeypatch.setattr(hook, "_run", run)
    assert hook.build(repository) is None
    assert len(steps) == 2 and (repository / hook.STATIC / "index.html").is_file()
    assert hook.build(repository) is None and len(steps) == 2
    (repository / hook.CLIENT / "src" / "main.ts").write_text("let x = 3\n", encoding="utf-8")
    assert hook.build(repository) is None
    assert len(steps) == 3, "packages are there already"
    page = repository / hook.STATIC / "index.html"
    assert page.read_text(encoding="utf-8") == "3"
    # A source archive carries the pages and their stamp: no Node is needed.
    archive = repository / "archive"
    shutil.copytree(repository / "src", archive / "src", ignore=lambda *_: ["node_modules"])
    assert hook.build(archive) is None and len(steps) == 3


def test_a_failing_step_is_one_line_and_leaves_what_was_there(
    repository: Path, hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = repository / hook.STATIC
    static.mkdir()
    (static / "index.html").write_text("old", encoding="utf-8")
    monkeypatch.setattr(hook, "_run", lambda *given: "npm failed: offline")
    assert hook.build(repository) == "npm failed: offline"
    assert (static / "index.html").read_text(encoding="utf-8") == "old"
    assert sorted(one.name for one in static.parent.iterdir()) == ["client", "static"]
    monkeypatch.setattr(hook, "_node", lambda: (None, {}))
    assert "no Node" in hook.build(repository)


def test_a_program_that_fails_is_told_in_one_line(tmp_path: Path, hook: ModuleType) -> None:
    import sys

    program = "print('npm error code E1'); print('npm error'); print('npm error it broke'); exit(1)"
    told = hook._run([sys.executable, "-c", program, "ci"], tmp_path, {})
    assert told == "npm failed: it broke"
    told = hook._run([str(tmp_path / "none")], tmp_path, {})
    assert told.startswith("vite failed: ") and "\n" not in told


def test_the_lock_file_names_no_host() -> None:
    client = ROOT / "src" / "partwise" / "studio" / "client"
    lock = json.loads((client / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, one in lock["packages"].items() if "resolved" in one]
    assert all("integrity" in one for name, one in lock["packages"].items() if name)
