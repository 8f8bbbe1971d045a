"""Devices and precisions: what is asked for is honoured or refused, what is chosen has a reason."""

import pytest
import torch

from partwise import machine
from partwise.errors import ConfigError
from partwise.machine import choices, peaks
from partwise.machine.measure import Measured

CPU = torch.device("cpu")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_devices_without_a_gpu() -> None:
    assert machine.pick_device("auto") == CPU
    assert machine.pick_device("cpu") == CPU
    for name in ("cuda", "cuda:0", "mps"):
        with pytest.raises(ConfigError, match=f"device={name} is not on this machine.*cpu"):
            machine.pick_device(name)


@pytest.mark.parametrize(
    ("asked", "layer", "dtype"),
    [
        ("auto", 0.6, torch.float32),
        ("auto", 1.3, torch.bfloat16),
        ("bfloat16", 0.6, torch.bfloat16),
    ],
)
def test_a_narrow_model_does_not_gain_from_bfloat16(
    monkeypatch: pytest.MonkeyPatch, asked: str, layer: float, dtype: torch.dtype
) -> None:
    speed(monkeypatch, 4.0)
    seen = []

    def told(rows: int, width: int) -> float:
        seen.append((rows, width))
        return layer

    monkeypatch.setattr(choices, "autocast_ratio", told)
    found, notice = machine.pick_precision(asked, CPU, rows=256, width=32)
    assert found == dtype
    assert ("this narrow" in str(notice)) == (dtype == torch.float32)
    assert seen == ([(256, 32)] if asked == "auto" else [])
    speed(monkeypatch, 1.0)
    assert machine.pick_precision("auto", CPU, rows=256, width=32)[0] == torch.float32
    assert len(seen) <= 1, "nothing is measured where the CPU gains nothing"


@pytest.mark.usefixtures("two_gpus")
def test_devices_with_two_gpus() -> None:
    assert machine.pick_device("auto") == torch.device("cuda")
    assert machine.pick_device("cuda") == torch.device("cuda")
    assert machine.pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match="cuda:0, cuda:1, cpu"):
        machine.pick_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:x", "cpu:0", "", "meta"])
def test_devices_that_do_not_exist(name: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no device '{name}'"):
        machine.pick_device(name)


def speed(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    found = Measured(1e9, ratio * 1e9, 1e9, 1)
    monkeypatch.setattr(choices, "measured", lambda: found)


@pytest.mark.parametrize(
    ("asked", "ratio", "dtype", "line"),
    [
        ("auto", 4.1, torch.bfloat16, "bfloat16: this CPU multiplies it 4.1x faster than float32"),
        ("auto", 1.2, torch.float32, "float32: this CPU multiplies bfloat16 at 1.2x its speed"),
        ("auto", 0.1, torch.float32, "float32: this CPU multiplies bfloat16 at 0.1x its speed"),
        ("bfloat16", 2.0, torch.bfloat16, "bfloat16: this CPU multiplies it 2.0x faster"),
        ("bfloat16", 0.5, torch.bfloat16, "bfloat16, as asked: this CPU multiplies it at 0.5x"),
        ("float16", 0.5, torch.float16, "float16, as asked"),
        ("float32", 9.0, torch.float32, "float32, as asked"),
    ],
)
def test_precision_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, asked: str, ratio: float, dtype: torch.dtype, line: str
) -> None:
    speed(monkeypatch, ratio)
    found, notice = machine.pick_precision(asked, CPU)
    assert found == dtype
    assert str(notice).startswith(line)


@pytest.mark.parametrize(
    ("asked", "native", "dtype", "word"),
    [
        ("auto", True, torch.bfloat16, "fast units"),
        ("auto", False, torch.float16, "loss scaling"),
        ("bfloat16", False, torch.bfloat16, "imitates"),
        ("bfloat16", True, torch.bfloat16, "as asked"),
        ("float32", True, torch.float32, "as asked"),
    ],
)
def test_precision_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, asked: str, native: bool, dtype: torch.dtype, word: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    found, notice = machine.pick_precision(asked, torch.device("cuda"))
    assert found == dtype
    assert word in str(notice)


def test_precision_elsewhere() -> None:
    assert machine.pick_precision("auto", torch.device("mps"))[0] == torch.float32
    assert machine.pick_precision("float16", torch.device("mps"))[0] == torch.float16
    with pytest.raises(ConfigError, match="choose auto, float32"):
        machine.pick_precision("fp8", CPU)


def test_the_peak_is_measured_tabulated_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "measured", lambda: Measured(3e9, 5e9, 1e9, 1))
    assert machine.peak_flops(CPU, torch.float32) == 3e9
    assert machine.peak_flops(CPU, torch.bfloat16) == 5e9
    assert machine.peak_flops(CPU, torch.float16) is None
    assert machine.peak_flops(torch.device("mps"), torch.float32) is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    # NVIDIA A100 data sheet, 2021: 312 TFLOPS in BF16 on tensor cores, 19.5 in FP32.
    assert machine.peak_flops(torch.device("cuda"), torch.bfloat16) == 312e12
    assert machine.peak_flops(torch.device("cuda"), torch.float32) == 19.5e12


@pytest.mark.parametrize(
    "name", ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A10G", "GeForce GTX 1080", "Tesla T40"]
)
def test_a_gpu_that_is_not_in_the_table_is_unknown(name: str) -> None:
    assert peaks.gpu_peak(name, half=True) is None


def test_every_row_of_the_table_is_reached() -> None:
    names = ["H200", "H100 PCIe", "H100 80GB HBM3", "A100-PCIE-40GB", "L40S", "L4", "A10"]
    names += ["V100-SXM2-16GB", "T4", "GeForce RTX 4090", "GeForce RTX 3090"]
    found = [peaks.gpu_peak(f"NVIDIA {name}", half=True) for name in names]
    assert found == [row[1] for row in peaks._PEAKS]
