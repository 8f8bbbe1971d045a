"""The machine's description is true where it can be checked another way."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from partwise import machine
from partwise.machine import facts


def test_versions_and_system_are_this_process() -> None:
    found = machine.describe()
    assert found["python"] == platform.python_version()
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found["numpy"] == np.__version__
    assert found["cores"] >= 1
    assert found["memory"] is None or found["memory"] > 2**20
    assert found["cpu"]
    assert platform.machine() in found["os"]
    json.dumps(found)


def test_a_container_has_fewer_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("control groups are Linux's")
    files = {"/sys/fs/cgroup/cpu.max": "150000 100000\n", "/sys/fs/cgroup/memory.max": "1000000\n"}
    monkeypatch.setattr(facts, "_text", lambda path: files.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert machine.cores() == 2
    assert machine.memory_bytes() == 1_000_000
    files["/sys/fs/cgroup/cpu.max"] = "max 100000\n"
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert machine.cores() == 64
    assert machine.memory_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_state_of_a_repository(tmp_path: Path) -> None:
    assert machine.git_state(tmp_path) == {}
    git(tmp_path, "init", "-q")
    assert machine.git_state(tmp_path) == {}
    (tmp_path / "a").write_text("1", encoding="utf-8")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert machine.git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "a").write_text("2", encoding="utf-8")
    assert machine.git_state(tmp_path) == {"commit": commit, "dirty": True}


@pytest.mark.parametrize(
    "failure", [FileNotFoundError(), subprocess.TimeoutExpired("git", 5), PermissionError()]
)
def test_without_git_there_is_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", fail)
    assert machine.git_state(tmp_path) == {}


def test_what_compiled_code_depends_on() -> None:
    features = facts.cpu_features().split()
    assert features == sorted(features)
    if sys.platform == "linux":
        assert features
        assert facts.c_library() == "" or facts.c_library().split()[0] == "glibc"
