"""The package as others get it: what is in the wheel, that it runs, and that its types hold."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import partwise

ROOT = Path(partwise.__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="tests run on an installed copy"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def test_the_wheel_holds_the_source_and_its_data(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    client = source / "partwise" / "studio" / "client"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and client not in path.parents
    }
    assert wanted <= names
    assert not [name for name in names if name.startswith("partwise/studio/client")]
    assert "partwise/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "docs"))]
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_the_sdist_holds_what_make_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"Makefile", "constraints.txt", "LICENSE", "README.md", "tests/conftest.py"} <= names
    client = "src/partwise/studio/client"
    assert {"hatch_build.py", f"{client}/package-lock.json", f"{client}/.npmrc"} <= names
    assert not [name for name in names if "node_modules" in name]


def test_the_wheel_runs_where_it_is_installed(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(place), str(wheel)], check=True)
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 40, encoding="utf-8")
    script = (
        "import sys, partwise\n"
        "from partwise.cli import main\n"
        f"assert partwise.__file__.startswith({str(place)!r}), partwise.__file__\n"
        "assert partwise.__version__ and 'torch' not in sys.modules\n"
        "words = sys.argv[1:]\n"
        "sys.exit(main(words))\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": str(place), "PARTWISE_CACHE": str(tmp_path / "c")}
    words = ["train", str(text), "--steps", "3", "--name", "x", "--model.d-model", "16"]
    words += ["--model.n-heads", "2", "--model.context-length", "16", "--model.n-layers", "1"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "x" / "run.toml").exists()


def test_a_consumer_is_checked_strictly(tmp_path: Path) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(
        "import torch\n"
        "import partwise as pw\n"
        "\n"
        "config: pw.ModelConfig = pw.ModelConfig(n_layers=2, d_model=32, n_heads=4)\n"
        "model: pw.GPT = pw.GPT(config)\n"
        "logits: torch.Tensor = model(torch.zeros(1, 4, dtype=torch.long))\n"
        "run: pw.Run = pw.train('novel.txt', train=pw.TrainConfig(steps=1))\n"
        "text: str = pw.sample(run, 'It was', temperature=0.7)\n",
        encoding="utf-8",
    )
    checked = mypy(script)
    assert checked.returncode == 0, checked.stdout
    script.write_text("import partwise as pw\n\npw.ModelConfig(d_model='wide')\n", encoding="utf-8")
    checked = mypy(script)
    assert checked.returncode == 1, "a wrong argument must be found"
    assert "arg-type" in checked.stdout


def mypy(script: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_the_pins_satisfy_the_ranges() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pairs}
    assert pins["torch"] == "2.13.0"
    extras = project["optional-dependencies"]
    unpinned = []
    for line in [*project["dependencies"], *(each for extra in extras.values() for each in extra)]:
        wanted = Requirement(line)
        if wanted.name == "partwise":
            continue
        name = canonicalize_name(wanted.name)
        if name not in pins:
            unpinned.append(name)
        else:
            assert wanted.specifier.contains(pins[name]), line
    # Only what `make` does not install is left to the reader.
    assert set(unpinned) <= {"wandb"}
