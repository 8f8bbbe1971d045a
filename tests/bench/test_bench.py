"""Benchmarks: what is taken in turn, what is reported, and that every case measures something."""

import json

import pytest

from partwise.bench.cases import Case, Series, alternate, ratio
from partwise.bench.config import BenchConfig
from partwise.bench.measure import Bench, table
from partwise.bench.text import write_words
from partwise.cli import main
from partwise.errors import ConfigError
from partwise.messages import Notice


def case(name: str, figures: list[float], baseline: bool = False) -> Case:
    left = iter(figures)
    return Case("group", Notice(name), "s", lambda: next(left), baseline)


def test_cases_are_taken_in_turn() -> None:
    cases = [case("a", [1, 2]), case("b", [3, 4])]
    taken = [(each.number, str(each.case.name), each.figure) for each in alternate(cases, 2)]
    assert taken == [(1, "a", 1), (1, "b", 3), (2, "a", 2), (2, "b", 4)]


def test_a_ratio_is_the_median_of_paired_ratios() -> None:
    # The machine doubles its speed in the second round: medians of each alone would say 1.5x.
    base = Series(case("base", []), [10, 20, 10])
    mine = Series(case("mine", []), [30, 60, 20])
    assert ratio(mine, base) == 3


def test_the_text_has_its_size_and_is_always_the_same(tmp_path) -> None:
    for name in ("a", "b"):
        write_words(tmp_path / name, 1)
    content = (tmp_path / "a").read_bytes()
    assert len(content) == 1_000_000
    assert content == (tmp_path / "b").read_bytes()
    assert content.isascii() and b"\n" in content and b" " in content


@pytest.mark.parametrize("name", ["start-up", "preparation", "training", "sampling", "memory"])
def test_every_benchmark_measures(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    monkeypatch.setattr("partwise.bench.sampling.LONG", 20)
    bench = Bench((name,), BenchConfig(rounds=1, seconds=0.01, megabytes=1))
    taken = list(bench.run())
    assert taken and all(each.figure > 0 for each in taken)
    result = json.loads(json.dumps(bench.result()))
    assert [figure["figures"] for figure in result["figures"]] == [[e.figure] for e in taken]
    baselines = {f["benchmark"] for f in result["figures"] if f["baseline"]}
    for figure in result["figures"]:
        assert (figure["ratio_to_baseline"] is not None) == (figure["benchmark"] in baselines)
        assert figure["name"] in table(result)


def test_two_benchmarks_do_not_run_at_once(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    config = BenchConfig(rounds=1, seconds=0.01, megabytes=1)
    running = Bench(("start-up",), config).run()
    next(running)
    assert main(["bench", "start-up", "--rounds", "1"]) == 2
    assert "is being written by process" in capsys.readouterr().err
    running.close()


def test_the_command_writes_what_it_prints(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    out = tmp_path / "result.json"
    assert main(["bench", "start-up", "--rounds", "1", "--json", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(out.read_text(encoding="utf-8"))


def test_an_unknown_benchmark_names_the_nearest(capsys) -> None:
    assert main(["bench", "trainning"]) == 2
    assert "did you mean training?" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"seconds": 0.0}, {"megabytes": -1}])
def test_senseless_settings_are_refused(wrong) -> None:
    with pytest.raises(ConfigError):
        BenchConfig(**wrong)
