"""Sources: what is opened, in which order, what is left out, and what is refused."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import StorageError, TextError
from partwise.ladder import record as ladder_record
from partwise.run import record
from partwise.text import sources, utf8
from partwise.text.folders import OURS
from partwise.text.sources import Source, open_source


def text_of(source: Source) -> str:
    return "".join(source.blocks())


def opened(path: Path) -> Source:
    return open_source(str(path))


def lines(source: Source) -> list[str]:
    return [str(notice) for notice in source.notices]


def test_a_file_is_read_byte_for_byte(tmp_path: Path) -> None:
    content = "\ufeffa\r\nb\0\rnaïve 你好 🙂"
    path = tmp_path / "novel.txt"
    path.write_bytes(content.encode("utf-8"))
    source = opened(path)
    assert text_of(source) == content
    assert (source.name, source.size) == ("novel", len(content.encode("utf-8")))


def test_a_spec_opens_the_same_text_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "novel.txt").write_text("text", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "a")
    specs = [open_source(spec).spec for spec in ("novel.txt", ".", "*.txt")]
    monkeypatch.chdir(tmp_path)
    assert [text_of(open_source(spec)) for spec in specs] == ["text"] * 3


@settings(deadline=None)
@given(st.text(), st.integers(1, 5))
def test_blocks_never_cut_a_character(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int
) -> None:
    data = io.BytesIO(text.encode("utf-8"))
    blocks = list(utf8.decoded(data, "text", "strict", block))
    assert "".join(blocks) == text and "" not in blocks


@settings(deadline=None)
@given(st.binary(), st.integers(1, 5))
def test_the_place_of_a_bad_byte_is_exact(data: bytes, block: int) -> None:
    replaced = "".join(utf8.decoded(io.BytesIO(data), "file", "replace", block))
    assert replaced == data.decode("utf-8", "replace")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        with pytest.raises(TextError) as caught:
            list(utf8.decoded(io.BytesIO(data), "file", "strict", block))
        line = str(caught.value)
        assert f"file is not UTF-8 at byte {error.start:,} (0x{data[error.start]:02x})" in line
        assert "--errors replace" in line
    else:
        assert replaced == text


def test_gb18030_is_recognised() -> None:
    novel = "话说天下大势，分久必合，合久必分。周末七国分争，并入于秦。" * 5000
    with pytest.raises(TextError, match=r"at byte 0 \(0xbb\) and looks like GB18030"):
        list(utf8.decoded(io.BytesIO(novel.encode("gb18030")), "novel", "strict", 1 << 20))


@pytest.mark.parametrize("text", ["naïve café, déjà vu; über", "Ærø Øresund på dansk, blåbærgrød"])
def test_latin1_is_not_taken_for_chinese(text: str) -> None:
    with pytest.raises(TextError) as caught:
        list(utf8.decoded(io.BytesIO(text.encode("latin-1")), "text", "strict", 1 << 20))
    assert "GB18030" not in str(caught.value)


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    files = {
        "b.txt": "B\n",
        "a/z.txt": "Z",
        "a/b/c.md": "C",
        "a.txt": "A\n",
        "Z.txt": "",
        "你.txt": "N",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    source = opened(tmp_path)
    # "Z.txt" < "a.txt" < "a/b/c.md" < "a/z.txt" < "b.txt" < "你.txt"; C and Z lack their newline.
    assert text_of(source) == "A\nC\nZ\nB\nN"
    assert source.name == tmp_path.name
    assert any("6 files in the order of their paths" in line for line in lines(source))


def test_what_is_no_text_is_left_out_of_a_folder_and_said(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("hidden", encoding="utf-8")
    (tmp_path / ".env").write_text("hidden", encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n1234")
    (tmp_path / "data.bin").write_bytes(b"abc\0def")
    (tmp_path / "text.txt").write_text("text", encoding="utf-8")
    source = opened(tmp_path)
    assert text_of(source) == "text"
    assert "hidden, skipped: .env, .git" in lines(source)
    assert "not text, skipped: data.bin, picture.png" in lines(source)


def test_a_named_file_with_nul_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"abc\0def")
    assert text_of(opened(path)) == "abc\0def"


@pytest.mark.skipif(sys.platform == "win32", reason="making links needs a privilege on Windows")
def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "texts" / "inner").mkdir(parents=True)
    (tmp_path / "texts" / "inner" / "a.txt").write_text("A\n", encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "o.txt").write_text("O\n", encoding="utf-8")
    (tmp_path / "texts" / "inner" / "loop").symlink_to(tmp_path / "texts")
    (tmp_path / "texts" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "texts" / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "texts" / "self").symlink_to("self")
    source = opened(tmp_path / "texts")
    assert text_of(source) == "A\nO\n"
    assert "broken links and the like, skipped: nowhere, self, loop" in lines(source)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_text(device: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=f"^{device} is a device"):
        open_source(device, cache=tmp_path)
    link = tmp_path / "novel.txt"
    link.symlink_to(device)
    with pytest.raises(TextError, match="is a device"):
        open_source(str(link), cache=tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_device_at_standard_input_is_no_text_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/zero").open("rb") as endless, Path(os.devnull).open("rb") as nothing:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=endless))
        with pytest.raises(TextError, match="standard input is a device"):
            open_source("-", cache=tmp_path)
        # Nothing at all ends at once, and is refused for what it is where it is read.
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=nothing))
        assert open_source("-", cache=tmp_path).size == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_runs_and_ladders_in_a_folder_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    for place in ("runs/first/run.toml", "ladders/second/ladder.json"):
        path = tmp_path / place
        (path.parent / "samples").mkdir(parents=True)
        path.write_text("x", encoding="utf-8")
        (path.parent / "samples" / "1.txt").write_text("x", encoding="utf-8")
    source = opened(tmp_path)
    assert text_of(source) == "a"
    assert "runs and ladders, skipped: second, first" in lines(source)
    # Whoever names a run's folder means it.
    assert text_of(opened(tmp_path / "runs" / "first")).replace("\n", "") == "xx"


def test_the_marks_of_runs_and_ladders_are_their_files() -> None:
    assert OURS == (record.FILE, ladder_record.FILE)


def test_a_named_pipe_in_a_folder_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.txt").write_text("A", encoding="utf-8")
    assert text_of(opened(tmp_path)) == "A"


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\0")
    with pytest.raises(TextError, match=r"has no text files \(1 others\)"):
        opened(tmp_path)


def test_a_glob_takes_what_matches(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "c.txt", "inner/d.py", ".hidden/e.py", "inner/.f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8", newline="")
    assert text_of(opened(tmp_path / "*.py")) == "a.py\nb.py\n"
    recursive = opened(tmp_path / "**" / "*.py")
    assert text_of(recursive) == "a.py\nb.py\ninner/d.py\n"
    assert recursive.name == tmp_path.name
    assert "hidden, skipped: e.py, .f.py" in lines(recursive)
    assert text_of(opened(tmp_path / "inner" / "**")) == "inner/d.py\n"
    assert text_of(opened(tmp_path / "inner" / ".*.py")) == "inner/.f.py\n"
    with pytest.raises(TextError, match="has no text files"):
        opened(tmp_path / "*.rs")


def test_two_stars_inside_a_name_are_one(tmp_path: Path) -> None:
    """As in a shell; Python before 3.13 refuses such a pattern."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_bytes(b"x\n")
    assert text_of(opened(tmp_path / "**a" / "x**.txt")) == "x\n"


def test_a_path_with_brackets_is_a_path_before_it_is_a_glob(tmp_path: Path) -> None:
    path = tmp_path / "[1] novel?.txt" if sys.platform != "win32" else tmp_path / "[1] novel.txt"
    path.write_text("text", encoding="utf-8")
    assert text_of(opened(path)) == "text"


def test_a_missing_path_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("text", encoding="utf-8")
    with pytest.raises(TextError) as caught:
        opened(tmp_path / "nobel.txt")
    assert str(caught.value).endswith(f"did you mean {tmp_path / 'novel.txt'}?")
    with pytest.raises(TextError, match=r"did you mean shakespeare\?"):
        open_source("shakespear")
    with pytest.raises(TextError, match=r"give a file, a folder, a glob, - .*tinyshakespeare"):
        open_source(str(tmp_path / "missing" / "qqq"))
    with pytest.raises(TextError, match="there is no text"):
        open_source("")
    with pytest.raises(TextError, match="there is no text ~nobody-of-that-name"):
        open_source("~nobody-of-that-name/novel.txt")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3", "PDF"),
        ("a.docx", b"PK\x03\x04\x14\0", "zip"),
        ("a.pt", b"PK\x03\x04\0\0", "pt"),
        ("a.pkl", b"\x80\x04\x95", "pickle"),
        ("a.txt", b"\xff\xfeh\0i\0", "UTF-16"),
        ("a.gz", b"\x1f\x8b\x08\0", "gzip"),
    ],
)
def test_a_file_that_is_no_text_is_refused_by_its_kind(
    name: str, content: bytes, kind: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=rf"{name} is .*{kind}.*, not UTF-8 text"):
        opened(tmp_path / name)


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_standard_input_is_kept_for_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = "piped 你好\r\n".encode() * 3
    piped(monkeypatch, data)
    source = open_source("-", cache=tmp_path)
    assert source.name == "stdin" and text_of(source) == data.decode("utf-8")
    assert text_of(open_source(source.spec)) == data.decode("utf-8")
    assert any("standard input is kept as" in line for line in lines(source))
    piped(monkeypatch, data)
    assert open_source("-", cache=tmp_path).spec == source.spec
    assert len(list((tmp_path / "stdin").iterdir())) == 1


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TextError, match="standard input is closed"):
        open_source("-")


def test_a_fault_while_piping_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Breaking()))
    with pytest.raises(KeyboardInterrupt):
        open_source("-", cache=tmp_path)
    assert list((tmp_path / "stdin").iterdir()) == []


def test_a_path_comes_before_a_corpus_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shakespeare").write_text("mine", encoding="utf-8")
    source = open_source("shakespeare")
    assert text_of(source) == "mine"
    assert any("the corpus is corpus:shakespeare" in line for line in lines(source))
    with pytest.raises(TextError, match="there is no corpus shakespear; choose shakespeare, tiny"):
        open_source("corpus:shakespear")


def test_a_file_that_changes_under_our_hands_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text", encoding="utf-8")
    source = opened(path)
    source.require_unchanged()
    path.write_text("longer text", encoding="utf-8")
    with pytest.raises(TextError, match=r"a\.txt was changed while it was read"):
        source.require_unchanged()


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may read everything"
)
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text", encoding="utf-8")
    path.chmod(0)
    with pytest.raises(StorageError, match="cannot be read"):
        opened(path)


def test_large_files_come_in_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 7)
    path = tmp_path / "a.txt"
    path.write_text("naïve 你好 🙂 " * 9, encoding="utf-8")
    blocks = list(opened(path).blocks())
    assert "".join(blocks) == "naïve 你好 🙂 " * 9
    assert max(len(block.encode("utf-8")) for block in blocks) <= 10
