"""Every mistake that a user can make is one of these: one line, status 2, no traceback.

The line names the value, the rule and the fix. It is written in English where it is raised and
rendered, when it is shown, in the reader's language (see `partwise.messages`).
"""

from partwise.messages import message


class PartwiseError(Exception):
    """A mistake that the user can mend.

    Args:
        template: the line in English, with `{name}` where a value belongs.
        **values: what those names stand for.
    """

    exit_status = 2

    def __init__(self, template: str, /, **values: object) -> None:
        super().__init__(template)
        self.template = template
        self.values = values

    def __str__(self) -> str:
        return message(self.template, **self.values)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine had too little memory; torch's own errors for that differ by device."""
    signs = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


class ConfigError(PartwiseError, ValueError):
    """A setting, or a combination of settings, that makes no sense."""


class UsageError(PartwiseError):
    """A command line that cannot be understood."""


class TextError(PartwiseError):
    """A text, a token file or a tokenizer that cannot be used."""


class RunError(PartwiseError):
    """A run folder that is missing, damaged, locked or of another version."""


class GoneError(RunError):
    """Something that was kept in memory for a while, and is no longer."""


class NoWeightError(PartwiseError, KeyError):
    """A weight of a part that a model was built without; a mapping's `get` knows it."""


class StorageError(PartwiseError):
    """A file that cannot be written or read whole."""


class CompilerError(PartwiseError):
    """A C compiler that is missing or fails; whoever asked for it goes on without."""


class TrainingError(PartwiseError):
    """A training run that cannot go on, such as one whose loss is no longer a number."""


class SamplingError(PartwiseError):
    """A prompt or a sampling setting that cannot be used."""


class InteropError(PartwiseError):
    """Somebody else's format that cannot be read, or that cannot hold this model."""
