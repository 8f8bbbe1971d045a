"""On a terminal, in a pipe, and under signals: as a person and as a shell meet the program."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from partwise.cli.screen import harmless, visible

COMMAND = [sys.executable, "-m", "partwise"]

# Long enough that it is still going on when the signal comes.
LONG = [
    *("--model.n-layers", "1", "--model.d-model", "16", "--model.n-heads", "2"),
    *("--model.context-length", "16", "--batch-size", "4", "--steps", "10000000"),
    *("--train.threads", "1", "--dtype", "float32", "--train.compile", "off"),
    *("--train.eval-every", "50", "--train.sample-chars", "20", "--device", "cpu"),
]

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    lines = (f"the quick brown fox {n} jumps over the lazy dog.\n" for n in range(200))
    (tmp_path / "novel.txt").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def start(work: Path, *words: str, **pipes: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *words],
        cwd=work,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes},
    )


def wait_for_checkpoint(run: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not (run / "checkpoints" / "last.json").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@posix
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(
    number: signal.Signals, status: int, work: Path
) -> None:
    process = start(work, "train", "novel.txt", *LONG, "--name", "long")
    wait_for_checkpoint(work / "runs" / "long", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    lines = out.decode().splitlines()
    saved = re.search(r"interrupted and saved at step ([\d,]+)", out.decode())
    assert saved is not None
    assert lines[-1] == "go on with: partwise resume runs/long"
    assert err.decode().strip() == "saving the run; a second time ends at once, without saving"

    step = int(saved[1].replace(",", ""))
    again = start(work, "resume", "runs/long", "--steps", str(step + 5))
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert f"going on from step {step:,}" in out.decode()
    assert f"finished at step {step + 5:,}" in out.decode()


@posix
def test_a_second_signal_ends_at_once(work: Path) -> None:
    # A step of this one takes long; the second signal does not wait for it.
    heavy = ["--model.n-layers", "2", "--model.d-model", "512", "--model.context-length", "128"]
    heavy += ["--batch-size", "64", "--train.threads", "1", "--dtype", "float32"]
    process = start(work, "train", "novel.txt", *heavy, "--name", "heavy", stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"training "):
            break
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while b"saving" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130


@posix
def test_a_reader_that_goes_away_ends_the_training_saved(work: Path) -> None:
    process = start(work, "train", "novel.txt", *LONG, "--name", "piped")
    assert process.stdout is not None
    process.stdout.readline()
    wait_for_checkpoint(work / "runs" / "piped", process)
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    again = start(work, "runs", "--runs-dir", "runs")
    assert b"interrupted and saved" in again.communicate(timeout=60)[0]


def on_a_terminal(work: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Run a command on a pseudo-terminal; its status and all that it wrote."""
    import pty
    import termios

    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 60))
    # What runs the tests may say how wide its own terminal is.
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*COMMAND, *words],
        cwd=work,
        env={"TERM": "xterm", **inherited, "OMP_NUM_THREADS": "1", **environment},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # how Linux tells that the other side is closed
            break
        if not block:
            break
        seen += block
    os.close(master)
    return process.wait(timeout=60), seen.decode("utf-8").replace("\r\n", "\n")


@posix
def test_a_terminal_gets_a_live_bar_and_its_cursor_back(work: Path) -> None:
    short = [*LONG[:-2], "--device", "cpu", "--steps", "120"]
    status, seen = on_a_terminal(work, "train", "novel.txt", *short, "--name", "live")
    assert status == 0
    assert "\x1b[?25l" in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    # Without what moves the cursor, the lines are those of a pipe.
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert "validation loss" in plain
    assert "finished at step 120" in plain


@posix
def test_no_color_is_honoured(work: Path) -> None:
    status, seen = on_a_terminal(work, "doctor", "--quick", NO_COLOR="1")
    assert status == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", seen)
    status, seen = on_a_terminal(work, "doctor", "--quick")
    assert re.search(r"\x1b\[[0-9;]*3[0-7]m", seen)


@posix
@pytest.mark.parametrize("language", ["en", "zh"])
def test_help_fits_a_narrow_terminal(language: str, work: Path) -> None:
    from rich.cells import cell_len

    status, seen = on_a_terminal(work, "--lang", language, "train", "--help")
    assert status == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert max(map(cell_len, plain.splitlines())) <= 60


@posix
def test_a_dumb_terminal_gets_plain_lines(work: Path) -> None:
    short = [*LONG[:-2], "--device", "cpu", "--steps", "20"]
    status, seen = on_a_terminal(work, "train", "novel.txt", *short, TERM="dumb")
    assert status == 0
    assert "\x1b" not in seen
    assert "finished at step 20" in seen


@posix
@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts_are_read_by_their_shells(shell: str, work: Path) -> None:
    process = start(work, "completion", shell)
    script, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"train.lr" in script  # tcsh writes the dashes once for all
    assert b"layernorm" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    checked = subprocess.run([shell, "-n"], input=script, capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


@posix
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["do"], {"doctor"}),
        (["train", "--model.nor"], {"--model.norm", "--model.norm-bias", "--model.norm-eps"}),
        (["train", "x", "--model.norm", "layer"], {"layernorm"}),
        (["train", "x", "--preset", "gpt2-x"], {"gpt2-xl"}),
        (["runs", "sh"], {"show"}),
    ],
)
def test_bash_completes(typed: list[str], wanted: set[str], work: Path) -> None:
    process = start(work, "completion", "bash")
    script, _ = process.communicate(timeout=60)
    words = ["partwise", *typed]
    quoted = " ".join(f"'{word}'" for word in words)
    ask = (
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        '"$(complete -p partwise | sed -e "s/.*-F //" -e "s/ .*//")"'
        f" partwise '{words[-1]}' '{words[-2]}'\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    found = subprocess.run(["bash"], input=script + ask.encode(), capture_output=True, timeout=60)
    offered = {word.strip() for word in found.stdout.decode().splitlines()}
    assert wanted <= offered, found


def test_what_moves_the_cursor_is_made_visible() -> None:
    assert visible("a\x1b[2J\n\u202eb") == "a\\x1b[2J\\n\\u202eb"
    assert harmless("a\n\tb\x07\x1bc") == "a\n\tb\\x07\\x1bc"
    assert harmless("你好 🙂 naïve") == "你好 🙂 naïve"
