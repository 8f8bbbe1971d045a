"""Try what the minutes dial could choose, on texts that it is not judged by.

    python benchmarks/dial_rules.py FOLDER "100 KB of plays" 1 4x96 --set model.dropout=0.2
    python benchmarks/dial_rules.py FOLDER "100 KB of plays" 1 4x96 --share 0.5
    python benchmarks/dial_rules.py FOLDER table

FOLDER is what `recipe_texts.py` wrote. Texts are of 90,000, 900,000 or 27 million characters: of
nine plays that tiny Shakespeare does not hold, or of the Python source of the installed packages;
each is judged by the 60,000 characters behind it. A minute is one of a core: tokens are counted
that this model trains on in so many seconds of the process, measured before, so that what else the
machine does changes nothing. `--share` trains on that share of them. Each result is a line of
`dial-rules.jsonl`; what stands there is not run again.
"""

import argparse
import json
import sysconfig
import time
from pathlib import Path
from typing import Any

import torch
from recipe import changed

from partwise.bench.dial import run_of
from partwise.budget.dial import facts_of
from partwise.budget.family import SIZES, inner_parameters, member, settings_of
from partwise.budget.speed import speed_of
from partwise.storage import cache_folder
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare

OUT = Path(__file__).with_name("dial-rules.jsonl")
JUDGED = 60_000
LEARNED = {
    "100 KB of plays": 90_000,
    "1 MB of plays": 900_000,
    "1 MB of packages": 900_000,
    "30 MB of packages": 27_000_000,
}


def source(length: int) -> str:
    """Python source of installed packages, file after file, those in ASCII."""
    parts: list[str] = []
    found = 0
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py")):
        text = path.read_bytes()
        if text.isascii() and found < length:
            parts.append(text.decode("ascii"))
            found += len(text)
    return "".join(parts)[:length]


def texts(name: str, folder: Path) -> tuple[Path, Path]:
    """What is learned and what it is judged by, written unless they are there."""
    learned = folder / f"rules-{name.replace(' ', '-')}.txt"
    judged = learned.with_suffix(".validation.txt")
    if not judged.exists():
        length = LEARNED[name]
        if name.endswith("packages"):
            text = source(length + JUDGED)
        else:
            text = (folder / "plays.txt").read_text("utf-8")[: length + JUDGED]
        learned.write_text(text[:length], encoding="utf-8", newline="")
        judged.write_text(text[length:], encoding="utf-8", newline="")
    return learned, judged


def attempt(args: argparse.Namespace) -> dict[str, object]:
    """Train once; what came of it."""
    learned, judged = texts(args.text, args.folder)
    config = DataConfig(validation=str(judged), unknown="skip")
    prepared = prepare(str(learned), config, cache=cache_folder(), offline=True)
    facts = facts_of(prepared)
    size = next(size for size in SIZES if str(size) == args.size)
    begin = changed(member(size, facts.vocab_size, facts.train_tokens), args.set)
    began = time.perf_counter()
    speed = speed_of(begin, time.process_time)
    tokens = int(60 * args.minutes * speed * args.share)
    found = run_of(begin, prepared, tokens)
    return {
        **found,
        "core_speed": round(speed),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "parameters": inner_parameters(begin.model),
        "text_tokens": facts.train_tokens,
        "surprise": facts.surprise,
        "settings": settings_of(begin),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def of_today(row: dict[str, Any]) -> bool:
    """Whether a run had the settings that it would have today; else it counts as not made."""
    size = next(each for each in SIZES if str(each) == row["size"])
    model, train = row["settings"]["model"], row["settings"]["train"]
    a_step = train["batch_size"] * model["context_length"]
    # It read whole steps, up to one fewer than it was made for.
    made_for = [row["tokens"] / row["share"], row["tokens"] / row["share"] + a_step - 1]
    begins = [
        member(size, model["vocab_size"], row["text_tokens"], readings=tokens / row["text_tokens"])
        for tokens in made_for
    ]
    return any(settings_of(changed(begin, row["set"])) == row["settings"] for begin in begins)


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", choices=[*LEARNED, "table"])
    parser.add_argument("minutes", type=float, nargs="?", default=1.0)
    parser.add_argument("size", nargs="?", default="4x96")
    parser.add_argument("--set", nargs="*", default=[], metavar="model.x=1")
    parser.add_argument("--share", type=float, default=1.0)
    args = parser.parse_args()
    known = []
    if OUT.exists():
        known = [json.loads(line) for line in OUT.read_text("utf-8").splitlines()]
    if args.text == "table":
        for row in known:
            print(
                row["text"],
                row["minutes"],
                row["size"],
                " ".join(row["set"]),
                row["share"],
                "|",
                f"{row['loss']:.4f}",
                f"{row['tokens']:,}",
            )
        return
    key = {
        "text": args.text,
        "minutes": args.minutes,
        "size": args.size,
        "set": sorted(args.set),
        "share": args.share,
    }
    standing = [row for row in known if of_today(row)]
    if any(all(row[name] == value for name, value in key.items()) for row in standing):
        return
    row = {**key, **attempt(args)}
    with OUT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps({**key, "loss": row["loss"], "tokens": row["tokens"]}), flush=True)


if __name__ == "__main__":
    main()
