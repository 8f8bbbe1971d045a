"""The command line as a whole: statuses, one-line mistakes, both languages, start-up."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partwise.cli import common, main
from partwise.cli.commands import COMMANDS
from partwise.cli.follow import watch
from partwise.cli.parser import Parser
from partwise.cli.program import DONE, FAULT, MISTAKE
from partwise.cli.view import Opened
from partwise.messages import use_language


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTWISE_LANG", "en")


def mistake(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a wrong command line gets."""
    assert main(words) == MISTAKE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err.rstrip("\n")


def test_table_of_commands_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == DONE
    with_help = capsys.readouterr().out
    assert main([]) == DONE
    assert capsys.readouterr().out == with_help
    for name in COMMANDS:
        assert f"  {name} " in with_help


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_command_explains_itself(
    name: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help", "--lang", language]) == DONE
    out, err = capsys.readouterr()
    assert err == ""
    assert ("usage: " if language == "en" else "用法：") in out
    assert "--lang" in out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_chinese_throughout(name: str) -> None:
    with use_language("zh"):
        parser = Parser(f"partwise {name}")
        COMMANDS[name].load().declare(parser)
        common.declare(parser)
        lines = [str(COMMANDS[name].summary)]
        lines += [text for flag in parser.flags for text in (flag.help, flag.group)]
        lines += [place.help for place in parser.places] if not parser.forms else []
        lines += [help for _, help in parser.forms]
    for line in lines:
        assert any(char >= "\u4e00" for char in line), line


def test_mistyped_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'trian'; did you mean train?" in mistake(["trian"], capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "x", "--learning-rat", "1"], "no flag --learning-rat; did you mean --lr?"),
        (["train", "x", "--lr=fast"], "--lr='fast' has the wrong type; give a number"),
        (["train", "x", "--lr"], "--lr needs a value"),
        (["train", "x", "--lr", "--steps", "3"], "--lr needs a value"),
        (["train", "x", "--steps", "1.5"], "--steps='1.5' has the wrong type; give a whole number"),
        (["train", "x", "--step", "3"], "no flag --step; did you mean --steps?"),
        (["train", "x", "--d-model", "3"], "no flag --d-model; did you mean --model.d-model?"),
        (["train", "x", "--train.lr", ""], "--train.lr='' has the wrong type"),
        (["train", "x", "--model.norm", "layernrm"], "choose layernorm, rmsnorm, batchnorm, none"),
        (["train", "x", "--dtype", "int8"], "choose auto, float32, bfloat16, float16"),
        (["train", "x", "--quiet=yes"], "--quiet takes no value"),
        (["train", "x", "y", "z"], "one TEXT is trained on, and 3 are named"),
        (["resume", "x", "y"], "does not know what 'y' is for"),
        (["train"], "TEXT"),
        (["train", "x", "--lang", "fr"], "--lang='fr' is not a choice; choose en, zh"),
        (["--lang", "fr"], "--lang='fr' is not a choice; choose en, zh"),
        (["--helpp"], "no flag --helpp; did you mean --help?"),
        (["--steps", "3", "train", "x"], "partwise has no flag --steps"),
        (["sample", "--prompt", "--x"], "--prompt needs a value; write --prompt=VALUE"),
        (["completion", "bsh"], "'bsh'; did you mean bash?"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in mistake(words, capsys)


def test_mistake_stays_one_line_whatever_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    line = mistake(["a\nb\x1b[31m\r"], capsys)
    assert "a\\nb\\x1b[31m\\r" in line


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "x", "--lr=fast", "--debug"]) == MISTAKE
    assert "Traceback" in capsys.readouterr().err


def test_fault_says_how_to_report_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: list[str]) -> int:
        raise KeyError("odd\nkey")

    monkeypatch.setattr("partwise.cli.program.dispatch", broken)
    assert main(["runs"]) == FAULT
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "KeyError" in err
    assert "--debug" in err
    assert "partwise doctor" in err


@pytest.mark.parametrize(
    "problem",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …")],
)
def test_too_little_memory_is_no_fault(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hungry(words: list[str]) -> int:
        raise problem

    monkeypatch.setattr("partwise.cli.program.dispatch", hungry)
    assert main(["train"]) == MISTAKE
    assert "--batch-size" in capsys.readouterr().err


def test_ctrl_c_where_nothing_is_to_save(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("partwise.cli.program.dispatch", interrupted)
    assert main(["runs"]) == 130
    assert capsys.readouterr().err == "partwise: interrupted\n"


def test_language_of_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "您要的是 train 吗" in mistake(["trian", "--lang", "zh"], capsys)
    assert "您要的是 train 吗" in mistake(["--lang=zh", "trian"], capsys)
    assert "did you mean" in mistake(["trian"], capsys)


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["--", "-", "--lang", "zh", "--debug", "--json", "--lr", "--steps=", "=", "--=", "-h", "-x"]
    ),
    st.sampled_from(
        ["--model.n-heads", "--name", "--prompt=", "--data.tokenizer", "\x00", "\udcff"]
    ),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.sampled_from([*COMMANDS, "trian", ""]), words=st.lists(WORDS, max_size=6))
def test_any_words_are_understood_or_refused(
    first: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `run` is left out: what is tried here is the reading of words, not the work.
    for name in COMMANDS:
        monkeypatch.setattr(COMMANDS[name].load(), "run", lambda said: DONE)
    monkeypatch.chdir(tmp_path)
    assert main([first, *words]) in (DONE, MISTAKE)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "partwise", *words],
        capture_output=True,
        env={**os.environ, "PARTWISE_LANG": "en", **environment},
        timeout=60,
    )


def test_start_needs_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from partwise.cli import main\n"
        "for words in (['--help'], ['train', '--help'], ['resume', '--help'], ['trian']):\n"
        "    main(words)\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'shtab'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_table_of_commands_needs_no_rich() -> None:
    code = (
        "import sys\n"
        "from partwise.cli import main\n"
        "main(['--help'])\n"
        "heavy = {'rich', 'partwise.model.config', 'partwise.cli.train'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_output_is_utf8_whatever_the_locale() -> None:
    done = run("--help", PARTWISE_LANG="zh", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0
    assert "训练" in done.stdout.decode("utf-8")


@pytest.mark.skipif(
    sys.platform == "win32", reason="a pipe's reader that goes away is a POSIX case"
)
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["size", "gpt2"]])
def test_broken_pipe_is_quiet(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "partwise", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


def in_shell(redirected: str, words: str = "runs") -> subprocess.CompletedProcess[str]:
    command = f'"{sys.executable}" -m partwise {words} {redirected}'
    surroundings = {**os.environ, "PARTWISE_LANG": "en"}
    return subprocess.run(
        ["sh", "-c", command], env=surroundings, capture_output=True, text=True, check=False
    )


@posix
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_fault(closed: str, tmp_path: Path) -> None:
    ended = in_shell(closed, f"runs --runs-dir '{tmp_path}'")
    assert (ended.returncode, ended.stderr) == (DONE, "")
    wrong = in_shell(closed, "runz")
    assert wrong.returncode == MISTAKE
    assert "Traceback" not in wrong.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    ended = in_shell(">/dev/full", "--help")
    assert ended.returncode == MISTAKE
    assert ended.stderr == "partwise: standard output: No space left on device\n"
    assert in_shell("2>/dev/full", "runz").returncode == MISTAKE


@posix
def test_a_deleted_folder_is_named_before_torch_is_asked(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        "import os, sys; from partwise.cli import main; "
        "os.rmdir(os.getcwd()); sys.exit(main(['train', 'shakespeare']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=gone,
        env={**os.environ, "PARTWISE_LANG": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == MISTAKE
    assert ended.stderr == (
        "partwise: the current folder was deleted; change into one that exists (cd)\n"
    )


def test_a_full_disk_behind_the_output_saves_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    asked: list[bool] = []

    class Full:
        def __call__(self, event: object) -> None:
            raise full

        def close(self) -> None:
            return

    def training(stop: Callable[[], bool]) -> Iterator[object]:
        yield "a step"
        asked.append(stop())

    monkeypatch.setattr("partwise.cli.follow.view_for", lambda **kwargs: Full())
    with pytest.raises(OSError, match="No space left") as caught:
        watch(Opened("a", Path("a")), training, [], quiet=False, as_json=False)
    assert caught.value is full
    assert asked == [True]
