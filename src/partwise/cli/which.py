"""Which run a command means: the one named, or the newest."""

from partwise.cli.screen import remark
from partwise.errors import UsageError
from partwise.messages import message
from partwise.run import Run, find, list_runs


def named_or_newest(places: list[str], runs_dir: str) -> Run:
    """The run that the first place names; without one the newest, which is said.

    Raises:
        UsageError: none is named, and there is none.
        RunError: there is no such run, or its folder is damaged.
    """
    if places:
        return Run.open(find(places[0], runs_dir))
    found = list_runs(runs_dir)
    whole = [summary for summary in found if summary.problem is None and summary.kind == "run"]
    if not whole:
        raise UsageError("name a RUN; {folder} holds none yet", folder=runs_dir)
    remark(message("the newest run: {path}", path=whole[-1].path))
    return Run.open(whole[-1].path)
