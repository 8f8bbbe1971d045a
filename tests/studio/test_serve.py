"""The command: its first line, its port, its end."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from partwise.errors import UsageError
from partwise.studio.serve import PORT, listen, show


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PARTWISE_HOME": str(folder / "home"), "PYTHONUTF8": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "partwise", "studio", "--no-browser", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def test_the_first_line_is_the_address(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:") and "/?token=" in line
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(line.strip(), timeout=60) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(line.split("?")[0], timeout=60)
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
    assert out == "" and "the studio has stopped" in errors
    assert "Traceback" not in errors
    if sys.platform != "win32":
        assert process.returncode == 143


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C goes to the whole console there")
def test_ctrl_c_ends_it_as_other_commands(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in errors


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C goes to the whole console there")
def test_a_stop_in_the_middle_of_a_request_is_no_fault(tmp_path: Path) -> None:
    """The first request for what needs torch takes seconds; the end does not wait for it."""
    with start(tmp_path) as process:
        assert process.stdout is not None
        address, token = process.stdout.readline().strip().split("/?token=")
        port = address.rpartition(":")[2]
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as waiting:
            head = f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            waiting.sendall(f"{head}Cookie: partwise-{port}={token}\r\n\r\n".encode())
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in errors and errors.strip().endswith("the studio has stopped")


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with start(tmp_path, "--port", str(port)) as process:
            out, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and out == ""
    assert errors.count("\n") == 1 and str(port) in errors


def test_the_next_free_port_is_taken_when_none_was_asked_for() -> None:
    first = listen(None)
    second = listen(None)
    with first, second:
        numbers = [one.getsockname()[1] for one in (first, second)]
    assert PORT <= numbers[0] < numbers[1]


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_there_is_not(port: int) -> None:
    with pytest.raises(UsageError):
        listen(port)


@pytest.mark.parametrize(
    ("name", "opened"), [("lynx", False), ("/usr/bin/w3m", False), ("x", True)]
)
def test_a_browser_in_the_terminal_is_not_opened(
    name: str, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Browser(webbrowser.GenericBrowser):
        def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
            seen.append(url)
            return True

    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "get", lambda: Browser(name))
    show("http://127.0.0.1")
    assert bool(seen) is opened


def test_starting_loads_no_torch() -> None:
    program = (
        "import sys; from pathlib import Path; from partwise.studio.app import build; "
        "from partwise.studio.state import State; build(State(data=Path('nowhere'))); "
        "heavy = {'torch', 'jupyter_client', 'matplotlib', 'IPython', 'zmq'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
