"""`partwise sample [RUN]`: text from a trained model, as it comes or into a file."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from partwise.cli import flags
from partwise.cli.parser import Parser, Said
from partwise.cli.screen import harmless, is_terminal, progress, remark, say
from partwise.errors import SamplingError, UsageError
from partwise.messages import message
from partwise.sampling.config import SampleConfig
from partwise.settings import option


@dataclass(frozen=True)
class SampleFlags:
    """What `partwise sample` can be told beside how it draws."""

    prompt: str = option("", "what the text starts with; - reads it from standard input")
    out: str | None = option(None, "write the text into this file, whole or not at all")
    which: Literal["best", "last"] = option(
        "best", "the weights with the lowest validation loss, or the last ones"
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps")
    runs_dir: str = option("runs", "folder that holds the runs")
    quiet: bool = option(False, "no remarks and no progress")
    json: bool = option(False, "print one JSON object at the end")


def declare(parser: Parser) -> None:
    """RUN, the prompt, and how the text is drawn."""
    parser.place("RUN", message("a run's folder or name; without it the newest"), folder=True)
    flags.add(parser, "", SampleFlags, message("what to do"))
    flags.add(parser, "", SampleConfig, message("how to draw"))


def run(said: Said) -> int:
    """Write.

    Raises:
        SamplingError: the prompt on standard input is not UTF-8.
    """
    asked = flags.given(said, "", SampleFlags)
    config = flags.given(said, "", SampleConfig)
    if asked.out is not None and (not asked.out or Path(asked.out).is_dir()):
        raise UsageError("--out={path} is a folder; give the name of a file", path=asked.out)
    prompt = _piped() if asked.prompt == "-" else asked.prompt

    from partwise.cli.speak import collect, speak
    from partwise.cli.which import named_or_newest
    from partwise.sampling.room import require_room
    from partwise.storage import try_output, write_output

    if asked.out is not None:
        try_output(Path(asked.out))
    found = named_or_newest(said.places, asked.runs_dir)
    require_room(found.record.model, config.count)
    model, tokenizer = found.model(asked.which, asked.device), found.tokenizer()
    if asked.out is None and not asked.json and config.count == 1:
        speak(model, tokenizer, prompt, config, quiet=asked.quiet)
        return 0

    began = time.perf_counter()
    with progress(message("writing"), quiet=asked.quiet or asked.json) as report:
        texts, notices = collect(model, tokenizer, prompt, config, report=report)
    seconds = time.perf_counter() - began
    if not asked.quiet and not asked.json:
        for notice in notices:
            remark(notice)
    if asked.out is not None:
        write_output(Path(asked.out), _joined(texts).encode("utf-8", "replace"))
    if asked.json:
        report_of = {
            "schema": 1,
            "run": str(found.path),
            "which": asked.which,
            "prompt": prompt,
            "samples": texts,
            "out": asked.out,
            "seconds": round(seconds, 3),
            "notices": notices,
        }
        say(json.dumps(report_of, ensure_ascii=False))
    elif asked.out is None:
        write = harmless if is_terminal(sys.stdout) else str
        say(write(_joined(texts)), end="")
    elif not asked.quiet:
        remark(
            message(
                "{characters:,} characters written to {path} in {seconds:.1f} s",
                characters=len(_joined(texts)),
                path=asked.out,
                seconds=seconds,
            )
        )
    return 0


def _piped() -> str:
    """The whole of standard input, as it is."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as problem:
        raise SamplingError(
            "the prompt on standard input is not UTF-8 at byte {place:,}; save it as UTF-8",
            place=problem.start,
        ) from problem


def _joined(texts: list[str]) -> str:
    """One sample as it is; several under their numbers."""
    if len(texts) == 1:
        return texts[0]
    return "".join(
        message("--- sample {number} of {count} ---", number=number, count=len(texts))
        + f"\n{text}\n\n"
        for number, text in enumerate(texts, start=1)
    )
