"""Weights come back bit for bit; torn, changed and pickled files are refused."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from partwise.errors import StorageError
from partwise.storage import read_tensors, refuse_pickle, sha256_file, write_tensors

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]


@given(
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(DTYPES),
    st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda n: n != "__metadata__"),
)
def test_any_tensor_comes_back(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], dtype: torch.dtype, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    tensor = torch.randn(shape).mul(3).to(dtype)
    sha = write_tensors(path, {name: tensor})
    (found,) = read_tensors(path, sha).values()
    assert found.dtype == dtype
    assert found.shape == tensor.shape
    assert torch.equal(found, tensor)


def test_views_and_gradients_are_written_as_what_they_show(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    parameter = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    write_tensors(path, {"t": parameter.T, "row": parameter[1]}, {"step": "3"})
    found = read_tensors(path)
    assert torch.equal(found["t"], parameter.detach().T)
    assert torch.equal(found["row"], parameter.detach()[1])
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"step": "3"}


def test_what_was_read_does_not_change_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, {"w": torch.ones(1000)})
    found = read_tensors(path)["w"]
    write_tensors(path, {"w": torch.zeros(1000)})
    assert torch.equal(found, torch.ones(1000))
    found.add_(1)
    assert torch.equal(read_tensors(path)["w"], torch.zeros(1000))


def test_every_torn_file_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    sha = write_tensors(path, {"w": torch.arange(6.0)})
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(StorageError, match="torn"):
            read_tensors(path)
        with pytest.raises(StorageError, match="checksum"):
            read_tensors(path, sha)


def test_one_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    sha = write_tensors(path, {"w": torch.arange(6.0)})
    assert sha == sha256_file(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="checksum"):
        read_tensors(path, sha)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no file"):
        read_tensors(tmp_path / "w.safetensors")
    with pytest.raises(StorageError, match="there is no file"):
        read_tensors(tmp_path / "w.safetensors", "0" * 64)


@pytest.mark.parametrize("name", ["model.pt", "vocab.PKL", "x.pth", "x.ckpt", "weights.bin", "w"])
def test_a_pickle_is_refused_whatever_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(StorageError, match=r"pickle.*safetensors"):
        read_tensors(path)


def test_a_header_that_begins_like_a_pickle_is_not_one(tmp_path: Path) -> None:
    # A header of 0x0280 bytes begins with 80 02, as pickles of protocol 2 do.
    path = tmp_path / "w.safetensors"
    for padding in range(1000):
        write_tensors(path, {"w": torch.ones(1)}, {"padding": "x" * padding})
        if path.read_bytes()[:2] == b"\x80\x02":
            break
    assert path.read_bytes()[:2] == b"\x80\x02"
    refuse_pickle(path)
    assert torch.equal(read_tensors(path)["w"], torch.ones(1))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_others_may_read_it_as_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    write_tensors(tmp_path / "weights.safetensors", {"w": torch.zeros(2)})
    assert (tmp_path / "weights.safetensors").stat().st_mode == plain.stat().st_mode
