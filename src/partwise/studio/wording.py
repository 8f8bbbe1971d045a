"""What a page says where a terminal would name a flag: a control of the page, or none at all.

Messages are written where they are met, and there the command line is what most readers have.
`PAGES` is laid over them for all that the studio answers, and is handed to its jobs, to their
workers and to the Python of a lesson.
"""

from partwise.messages import Notice

# Names in braces get their values where the message is met. A `Notice` with `**` of a dict is how
# the test of messages knows that they are not written out here, and so asks for none of them.
_LATER: dict[str, object] = {}

_WORDS = {
    # No page has a control for it.
    "d_model={d_model} is not divisible by n_heads={n_heads}; n_heads {choices} would do, or set "
    "head_dim": Notice(
        "d_model={d_model} is not divisible by n_heads={n_heads}; n_heads {choices} would do",
        **_LATER,
    ),
    "the tokenizer {name} does not know {characters}; use other characters, or --unknown skip "
    "to leave them out": Notice(
        "the tokenizer {name} does not know {characters}; use other characters",
        **_LATER,
    ),
    "the tokenizer {name} does not know all of this text and would read {unknown!r}, first in "
    "{near!r}; train on a text that it knows, or --unknown skip to leave that to it": Notice(
        "the tokenizer {name} does not know all of this text and would read {unknown!r}, first in "
        "{near!r}; train on a text that it knows",
        **_LATER,
    ),
    "character {place} is U+{point:04X}, half of a surrogate pair; give whole characters, or "
    "--unknown skip to leave it out": Notice(
        "character {place} is U+{point:04X}, half of a surrogate pair; give whole characters",
        **_LATER,
    ),
    "matrices in bfloat16: a long text is read from half the memory (--dtype float32)": Notice(
        "matrices in bfloat16: a long text is read from half the memory", **_LATER
    ),
    "tinyshakespeare is not in the cache and --offline forbids its download; name a folder that "
    "holds {file} with PARTWISE_DATA, or use the corpus shakespeare": Notice(
        "tiny Shakespeare is not on this machine, and a page downloads nothing; choose "
        "shakespeare, or name a folder that holds {file} with PARTWISE_DATA before the studio is "
        "started",
        **_LATER,
    ),
    "{path} is not UTF-8 at byte {place} ({byte}) and looks like GB18030; save it as UTF-8 "
    "(iconv -f GB18030 -t UTF-8), or --errors replace to read U+FFFD there": Notice(
        "{path} is not UTF-8 at byte {place} ({byte}) and looks like GB18030; save it as UTF-8",
        **_LATER,
    ),
    "{path} is not UTF-8 at byte {place} ({byte}); save it as UTF-8, or --errors replace to read "
    "U+FFFD there": Notice(
        "{path} is not UTF-8 at byte {place} ({byte}); save it as UTF-8", **_LATER
    ),
    "the text of {run} cannot be opened again: {reason}; put it back, or say where it is with "
    "--text": Notice("the text of {run} cannot be opened again: {reason}; put it back", **_LATER),
    "{path} exists already; go on with: partwise resume {path}, or give another --name": Notice(
        "{path} exists already; go on with it on its page, or choose another name", **_LATER
    ),
    "LoRA adds to a trained model, and rank={rank} names none; begin with one (--from)": Notice(
        "LoRA adds to a trained model, and rank={rank} names none; begin with one", **_LATER
    ),
    "{run} was imported and has no text of its own; train it on one with: partwise train TEXT "
    "--from {run}": Notice("{run} was imported and has no text of its own; choose one", **_LATER),
    "--preset={preset} and --recipe={recipe} both choose the model; give one of them": Notice(
        "{preset} and {recipe} both choose the model; keep one of them", **_LATER
    ),
    "{name} reads one text and writes another; train it on pairs of texts with: partwise "
    "translate PAIRS --preset {name}": Notice(
        "{name} reads one text and writes another, and is trained on pairs of texts alone", **_LATER
    ),
    "{run} was trained with {field}={before} and this ladder wants {now}; give another --name, or "
    "--again to train it anew": Notice(
        "{run} was trained with {field}={before} and this ladder wants {now}; choose another "
        "number of steps, or remove that folder",
        **_LATER,
    ),
    "{folder} holds {run}, trained with {field}={before}, and this ladder wants {now}; give "
    "another --name": Notice(
        "{folder} holds {run}, trained with {field}={before}, and this ladder wants {now}; remove "
        "that folder to begin anew",
        **_LATER,
    ),
    "the text {spec} has changed since {run} was trained; bring the old text back, or give another "
    "--name": Notice(
        "the text {spec} has changed since {run} was trained; bring the old text back, or remove "
        "the ladder's folder",
        **_LATER,
    ),
    "{folder} lies in the text {text}, and what is written there would become part of it; give "
    "another --ladders-dir": Notice(
        "{folder} lies in the text {text}, and what is written there would become part of it; move "
        "the text elsewhere",
        **_LATER,
    ),
    "one seed cannot tell; try --seeds 3": Notice("one seed cannot tell; take three", **_LATER),
    "give --seeds": Notice("the number of seeds is a control of its own", **_LATER),
    "give --steps, which every rung shares": Notice(
        "the number of steps is a control of its own, which every rung shares", **_LATER
    ),
    "{variant} changes nothing on rung {rungs}; choose another rung with --only": Notice(
        "{variant} changes nothing on rung {rungs}; climb to another rung", **_LATER
    ),
    "{field} is changed twice, to {first} and to {second}; keep one, or give --each": Notice(
        "{field} is changed twice, to {first} and to {second}; keep one", **_LATER
    ),
    "{run} has checkpoints already; go on with: partwise translate {run} --resume, or train under "
    "another name": Notice(
        "{run} has checkpoints already; go on with it on its page, or train under another name",
        **_LATER,
    ),
    "{run} has checkpoints already; go on with: partwise resume {run}, or train under another "
    "name": Notice(
        "{run} has checkpoints already; go on with it on its page, or train under another name",
        **_LATER,
    ),
    "{folder} is a translator; use it with: partwise translate {folder}": Notice(
        "{folder} is a translator; it translates in the lab “Where a translator looks”", **_LATER
    ),
    "the pairs of {run} cannot be opened again: {reason}; put them back, or say where they are "
    "with --pairs": Notice(
        "the pairs of {run} cannot be opened again: {reason}; put them back", **_LATER
    ),
    "{name}: no pair is left whose texts have {longest} {unit} or fewer; a larger "
    "--model.context-length would do": Notice(
        "{name}: no pair is left whose texts have {longest} {unit} or fewer", **_LATER
    ),
    "{path}, line {line}: {count} columns where 2 are needed; choose two of them with "
    "--data.source-column and --data.target-column": Notice(
        "{path}, line {line}: {count} columns where 2 are needed", **_LATER
    ),
}

PAGES = {template: notice.template for template, notice in _WORDS.items()}
