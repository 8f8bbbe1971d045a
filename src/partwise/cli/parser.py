"""Reads one command's words: argparse underneath, one line for every mistake, no abbreviations.

argparse splits flags from values and nothing more. Types and choices are checked afterwards by
`partwise.settings`, so a mistake reads the same in a TOML file, in Python and here.
"""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from partwise.errors import UsageError
from partwise.messages import Notice

# Names that other tools give to our flags; a mistyped one of these finds its way too.
ELSEWHERE = {
    "--learning-rate": "--lr",
    "--max-iters": "--steps",
    "--max-steps": "--steps",
    "--iters": "--steps",
    "--epochs": "--train.epochs",
    "--block-size": "--model.context-length",
    "--context": "--model.context-length",
    "--n-layer": "--model.n-layers",
    "--layers": "--model.n-layers",
    "--n-head": "--model.n-heads",
    "--heads": "--model.n-heads",
    "--n-embd": "--model.d-model",
    "--width": "--model.d-model",
    "--model": "--preset",
    "--precision": "--dtype",
    "--num-samples": "--count",
    "--max-new-tokens": "--tokens",
    "--start": "--prompt",
    "--output": "--out",
}


@dataclass(frozen=True)
class Flag:
    """One flag as the help shows it.

    Args:
        names: the ways to write it, the shortest first.
        value: what stands after it (`N`, `TEXT`), or "" for a switch.
        help: what it does, with unit and default, in the reader's language.
        choices: the only values it takes, or empty; shells complete them.
        group: the heading it stands under.
    """

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class Place:
    """A word that is known by where it stands, such as TEXT in `partwise train TEXT`."""

    name: str
    help: str
    choices: tuple[str, ...] = ()
    many: bool = False
    folder: bool = False


@dataclass(frozen=True)
class Said:
    """What one command line said.

    Args:
        words: setting's key -> each (flag as typed, word) in order; a switch has the word "".
        places: the words that belong to no flag.
    """

    words: dict[str, list[tuple[str, str]]]
    places: list[str]

    def has(self, key: str) -> bool:
        """Whether the flag of this setting was typed."""
        return key in self.words


class Parser(argparse.ArgumentParser):
    """The flags and places of one command.

    Args:
        command: the words that start it, such as `partwise train`.
        summary: what it does, in one line.
    """

    def __init__(self, command: str = "", summary: Notice | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("prog", command)
        super().__init__(
            **kwargs,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
            argument_default=argparse.SUPPRESS,
        )
        self.summary = summary
        self.flags: list[Flag] = []
        self.actions: list[argparse.Action] = []  # argparse's side of each flag, in that order
        self.places: list[Place] = []
        self.forms: list[tuple[str, str]] = []

    def flag(
        self,
        key: str,
        names: Sequence[str],
        help: str,
        *,
        value: str = "",
        choices: Iterable[str] = (),
        group: str = "",
    ) -> None:
        """Add a flag whose words are kept under `key`; without `value` it is a switch."""
        self.flags.append(Flag(tuple(names), value, help, tuple(choices), group))
        taken = None if value else 0
        self.actions.append(self.add_argument(*names, dest=key, action=_Collect, nargs=taken))

    def place(
        self,
        name: str,
        help: str,
        *,
        choices: Iterable[str] = (),
        many: bool = False,
        folder: bool = False,
    ) -> None:
        """Add a word that is known by where it stands."""
        self.places.append(Place(name, help, tuple(choices), many, folder))

    def form(self, words: str, help: str) -> None:
        """Add one way to use the command, where its places alone do not tell."""
        self.forms.append((words, help))

    def first_place(self, words: Sequence[str]) -> int:
        """Where in `words` the first one stands that is neither a flag nor a flag's value."""
        valued = {name for flag in self.flags if flag.value for name in flag.names}
        place = 0
        while place < len(words) and words[place].startswith("-"):
            place += 2 if words[place] in valued else 1
        return min(place, len(words))

    def understand(self, words: Sequence[str]) -> Said:
        """What `words` say.

        Raises:
            UsageError: a flag that does not exist, lacks its value, or takes none; a word too many.
        """
        # Everything after `--` is a place, whatever it looks like.
        end = words.index("--") if "--" in words else len(words)
        before, after = list(words[:end]), list(words[end + 1 :])
        said: dict[str, list[tuple[str, str]]] = {}
        try:
            _, rest = self.parse_known_args(before, argparse.Namespace(said=said))
        except argparse.ArgumentError as mistake:
            raise self._wrong_value(mistake, before) from None
        if "help" in said:
            return Said(said, [])
        for word in rest:
            if word.startswith("-") and word != "-":
                raise self._unknown_flag(word.split("=", 1)[0])
        places = [*rest, *after]
        if not any(place.many for place in self.places) and len(places) > len(self.places):
            raise UsageError(
                "{command} does not know what {word!r} is for; see `{command} --help`",
                command=self.prog,
                word=places[len(self.places)],
            )
        return Said(said, places)

    def error(self, message: str) -> Any:
        """argparse's own complaints, should any be left, are mistakes like all others."""
        raise UsageError("{command}: {reason}", command=self.prog, reason=message)

    def _wrong_value(self, mistake: argparse.ArgumentError, words: Sequence[str]) -> UsageError:
        names = set((mistake.argument_name or "").split("/"))
        typed = [word for word in words if word.split("=", 1)[0] in names]
        flag = typed[-1].split("=", 1)[0] if typed else mistake.argument_name
        takes_value = any(flag in known.names and known.value for known in self.flags)
        if takes_value:
            return UsageError(
                "{flag} needs a value; write {flag}=VALUE when it begins with a dash", flag=flag
            )
        return UsageError("{flag} takes no value; write {flag} alone", flag=flag)

    def _unknown_flag(self, word: str) -> UsageError:
        meant = self.nearest_flag(word)
        if meant is None:
            return UsageError(
                "{command} has no flag {flag}; `{command} --help` lists them",
                command=self.prog,
                flag=word,
            )
        return UsageError(
            "{command} has no flag {flag}; {offer}",
            command=self.prog,
            flag=word,
            offer=Notice("did you mean {name}?", name=meant),
        )

    def nearest_flag(self, word: str) -> str | None:
        """The flag that `word` most likely meant, if any is close."""
        known = [name for flag in self.flags for name in flag.names if name.startswith("--")]
        meant = {name: name for name in known}
        # `--d-model` is as close to `--model.d-model` as a word can be.
        meant.update({"--" + name.split(".", 1)[1]: name for name in known if "." in name})
        meant.update({other: ours for other, ours in ELSEWHERE.items() if ours in known})
        meant.update({name: name for name in known})
        close = difflib.get_close_matches(word.replace("_", "-"), meant, n=1, cutoff=0.6)
        return meant[close[0]] if close else None


class _Collect(argparse.Action):
    """Keeps each word with the flag that it followed, in the order in which they were typed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        word = values if isinstance(values, str) else ""
        namespace.said.setdefault(self.dest, []).append((option_string or "", word))
