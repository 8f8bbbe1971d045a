"""One benchmark from its cases to a result: alone on the machine, in turn, with what was met."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

from partwise import __version__
from partwise.bench.cases import Case, Round, Series, alternate, load, ratio
from partwise.bench.config import BenchConfig
from partwise.machine import describe, git_state
from partwise.storage import cache_folder, lock

Benchmark = Literal["training", "sampling", "preparation", "start-up", "memory"]

BENCHMARKS: tuple[Benchmark, ...] = ("start-up", "preparation", "training", "sampling", "memory")


class Bench:
    """Takes the figures of some benchmarks; `result` then holds them.

    Args:
        names: the benchmarks.
        config: rounds and sizes.
    """

    def __init__(self, names: tuple[Benchmark, ...], config: BenchConfig) -> None:
        self.names = names
        self.config = config
        self.series: list[Series] = []
        self.loads: list[float | None] = []

    def run(self) -> Iterator[Round]:
        """Measure, telling each figure as it is taken.

        Raises:
            RunError: another benchmark runs on this machine.
        """
        with lock(_lock_file()):
            for name in self.names:
                self.loads.append(load())
                with ExitStack() as stack:
                    cases = _cases(name, self.config, stack)
                    taken = {id(case): Series(case) for case in cases}
                    self.series.extend(taken.values())
                    for each in alternate(cases, self.config.rounds):
                        taken[id(each.case)].figures.append(each.figure)
                        yield each

    def result(self) -> dict[str, Any]:
        """Everything that was measured, where and with what, ready for JSON."""
        baselines = {each.case.group: each for each in self.series if each.case.baseline}
        figures = []
        for each in self.series:
            base = baselines.get(each.case.group)
            figures.append(
                {
                    "benchmark": each.case.group,
                    "name": str(each.case.name),
                    "unit": each.case.unit,
                    "median": each.median,
                    "lowest": min(each.figures),
                    "highest": max(each.figures),
                    "figures": each.figures,
                    "ratio_to_baseline": None if base is None else ratio(each, base),
                    "baseline": each.case.baseline,
                }
            )
        return {
            "schema": 1,
            "partwise": __version__,
            "git": git_state(),
            "machine": describe(),
            "load_before": self.loads,
            "rounds": self.config.rounds,
            "figures": figures,
        }


def _cases(name: Benchmark, config: BenchConfig, stack: ExitStack) -> list[Case]:
    # Each of these imports what it measures, which for start-up is nothing.
    if name == "start-up":
        from partwise.bench.processes import startup_cases

        return startup_cases()
    if name == "memory":
        from partwise.bench.processes import memory_cases

        return stack.enter_context(memory_cases(config.megabytes))
    if name == "preparation":
        from partwise.bench.preparation import preparation_cases

        return stack.enter_context(preparation_cases(config.megabytes))
    if name == "training":
        from partwise.bench.training import training_cases

        return training_cases(config.seconds)
    from partwise.bench.sampling import sampling_cases

    return sampling_cases(config.seconds)


def _lock_file() -> Any:
    return cache_folder() / "bench" / "lock"


def table(result: dict[str, Any]) -> str:
    """The figures of a result as a Markdown table, with the machine above it."""
    machine = result["machine"]
    loads = [each for each in result["load_before"] if each is not None]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, Python {machine['python']}, "
        f"torch {machine['torch']}, Partwise {result['partwise']}; {result['rounds']} rounds in "
        f"turn; load before: {', '.join(f'{each:.2f}' for each in loads) or 'unknown'}",
        "",
        "| benchmark | what | median | lowest to highest | unit | ratio |",
        "|---|---|---:|---:|---|---:|",
    ]
    for each in result["figures"]:
        times = "" if each["ratio_to_baseline"] is None else f"{each['ratio_to_baseline']:.2f}x"
        lines.append(
            f"| {each['benchmark']} | {each['name']} | {_short(each['median'])} | "
            f"{_short(each['lowest'])} to {_short(each['highest'])} | {each['unit']} | {times} |"
        )
    return "\n".join(lines) + "\n"


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
