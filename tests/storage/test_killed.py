"""SIGKILL in the middle of writes: what is read is always the old state or the new one."""

import random
import subprocess
import sys
import time
from pathlib import Path

from partwise.storage import read_json, read_tensors, sweep

WRITE = """
import sys
from pathlib import Path
import torch
from partwise.storage import sweep, write_folder, write_json, write_tensors
root = Path(sys.argv[1])
step = int(sys.argv[2])
while True:
    step += 1
    with write_folder(root / f"step-{step:06d}") as folder:
        sha = write_tensors(folder / "w.safetensors", {"w": torch.full((20000,), float(step))})
        write_json(folder / "state.json", {"step": step, "sha": sha}, kind="state", version=1)
    write_json(root / "last.json", {"step": step, "pad": "x" * 50000}, kind="last", version=1)
    sys.stdout.write(f"{step}\\n")
    sys.stdout.flush()
"""


def test_the_state_is_always_old_or_new(tmp_path: Path) -> None:
    moments = random.Random(1)
    step = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE, str(tmp_path), str(step)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = int(process.stdout.readline())
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        said = max([said, *map(int, process.communicate()[0].split())])
        _, last = read_json(tmp_path / "last.json", kind="last", newest=1)
        assert last["step"] in (said, said + 1)
        for folder in tmp_path.glob("step-*"):
            _, state = read_json(folder / "state.json", kind="state", newest=1)
            weights = read_tensors(folder / "w.safetensors", state["sha"])["w"]
            assert (weights == state["step"]).all()
            assert folder.name == f"step-{state['step']:06d}"
        assert (tmp_path / f"step-{last['step']:06d}").exists()
        step = last["step"]
        sweep(tmp_path)
        assert list(tmp_path.glob(".partial-*")) == []
