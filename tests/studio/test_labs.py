"""The labs' experiments, against their definitions; and their addresses."""

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from partwise.errors import UsageError
from partwise.ladder.depth import STACK, stack
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.studio import labs
from partwise.studio.lab import deep, dropout, norms
from partwise.studio.state import State
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.training.events import Finished, Stepped
from studio.live import PATIENCE, alone

WORDS = "the cat sat on the mat and the dog sat on the log\n" * 200


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("text")
    (folder / "cats.txt").write_text(WORDS, encoding="utf-8")
    return prepare(str(folder / "cats.txt"), DataConfig(), cache=folder)


@pytest.fixture(scope="module")
def model() -> GPT:
    torch.manual_seed(1)
    config = ModelConfig(
        vocab_size=17, context_length=16, n_layers=2, d_model=16, n_heads=2, position="rotary"
    )
    return GPT(config).eval()


def ids(count: int = 3, length: int = 12) -> torch.Tensor:
    return torch.randint(17, (count, length + 1), generator=torch.Generator().manual_seed(2))


# --- Deep stacks and the race ------------------------------------------------------------------


def test_a_stack_is_the_ladder_s_with_its_depth(text: Prepared) -> None:
    found = deep.stack(False, "pre", "fan_in", 6, text)
    vocab_size = text.tokenizer.vocab_size
    base = dataclasses.replace(STACK, n_layers=6, vocab_size=vocab_size)
    expected = stack(False, "pre", "fan_in", base=base, ids=deep.pieces(text))
    assert found == expected
    assert len(found.gradient) == len(found.similarity) == len(found.contribution) == 6


@pytest.mark.parametrize("layers", [0, -1, 129])
def test_a_depth_that_makes_no_sense_is_refused(text: Prepared, layers: int) -> None:
    with pytest.raises(UsageError, match=f"layers={layers} is out of range"):
        deep.stack(True, "pre", "fan_in", layers, text)


def test_pieces_are_of_the_text_and_those_of_validation_of_its_end(text: Prepared) -> None:
    learned = "".join(WORDS[: len(text.train)])
    for piece in deep.pieces(text, count=5, length=20):
        assert text.tokenizer.decode(piece.tolist()) in learned
    (first, *_) = deep.pieces(text, count=2, length=20, validation=True)
    assert text.tokenizer.decode(first.tolist()) in WORDS[len(text.train) :]


def test_a_race_takes_both_in_turn_to_the_end(text: Prepared) -> None:
    events = list(deep.race("fan_in", 2, 10, text))
    assert [norm for norm, _ in events] == ["pre", "post"] * 3
    for lane in ("pre", "post"):
        mine = [event for norm, event in events if norm == lane]
        assert [event.step for event in mine if isinstance(event, Stepped)] == [5, 10]
        end = mine[-1]
        assert isinstance(end, Finished)
        assert end.val_loss is not None and 0 < end.val_loss < 5


# --- Three norms --------------------------------------------------------------------------------


def test_each_norm_takes_its_own_mean() -> None:
    x = norms.tokens(2, 4, 8, spread=2.0, seed=3)
    layer, root, batch = norms.normalise(x, alone=4)
    assert [one.norm for one in (layer, root, batch)] == ["layernorm", "rmsnorm", "batchnorm"]
    zero, one = torch.zeros(8), torch.ones(8)
    torch.testing.assert_close(layer.row_means, zero, atol=1e-6, rtol=0)
    torch.testing.assert_close(layer.row_sizes, one, atol=1e-3, rtol=0)
    torch.testing.assert_close(root.row_sizes, one, atol=1e-3, rtol=0)
    torch.testing.assert_close(batch.column_means, zero, atol=1e-6, rtol=0)
    torch.testing.assert_close(batch.column_sizes, one, atol=1e-3, rtol=0)
    assert root.row_means.abs().max() > 0.05
    assert layer.column_means.abs().max() > 0.05


def test_only_batchnorm_moves_a_token_when_other_texts_come() -> None:
    for texts in (2, 3):
        x = norms.tokens(texts, 4, 8, spread=1.0, seed=1)
        layer, root, batch = norms.normalise(x, alone=4)
        assert layer.first_moved == root.first_moved == 0.0
        assert batch.first_moved > 0.01
    # Alone in its batch, there is nobody to move it.
    assert norms.normalise(x[:4], alone=4)[2].first_moved == 0.0


def test_more_texts_do_not_change_the_first() -> None:
    few, many = (norms.tokens(texts, 4, 8, 1.0, 5) for texts in (1, 6))
    assert torch.equal(many[:4], few)


@pytest.mark.parametrize("size", [(1, 1, 8), (7, 4, 8), (2, 4, 1), (2, 4, 17), (-2, -4, 8)])
def test_a_matrix_that_cannot_be_shown_is_refused(size: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="out of range"):
        norms.tokens(*size, 1.0, 1)


# --- Dropout ------------------------------------------------------------------------------------


def test_dropped_edges_are_zero_and_the_rest_is_scaled() -> None:
    weights = torch.softmax(torch.randn(20, 20, generator=torch.Generator().manual_seed(0)), -1)
    state = torch.random.get_rng_state()
    dropped = dropout.edges(weights, 0.25, seed=4)
    assert torch.equal(torch.random.get_rng_state(), state)
    kept = dropped > 0
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)
    assert 0.1 < 1 - kept.float().mean() < 0.4
    assert torch.equal(dropout.edges(weights, 0.25, seed=4), dropped)
    assert not torch.equal(dropout.edges(weights, 0.25, seed=5), dropped)


def test_the_mean_of_thinned_networks_is_that_of_their_probabilities(model: GPT) -> None:
    texts = ids()
    found = list(dropout.thinned(model, texts, 0.3, networks=5, seed=7))
    assert [one.networks for one in found] == [1, 2, 3, 4, 5]
    assert found[0].loss == pytest.approx(found[0].mean_loss)
    assert len({one.loss for one in found}) == 5
    assert found[-1].mean_of_losses == pytest.approx(sum(one.loss for one in found) / 5)
    # The mean of probabilities is never worse than the mean of losses (Jensen).
    assert all(one.mean_loss <= one.mean_of_losses + 1e-9 for one in found)
    again = list(dropout.thinned(model, texts, 0.3, networks=5, seed=7))
    assert again == found


def test_the_whole_network_is_the_model_as_it_is(model: GPT) -> None:
    texts = ids()
    with torch.no_grad():
        logits = model(texts[:, :-1])
    expected = F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten()).item()
    assert dropout.whole(model, texts) == pytest.approx(expected)
    assert not model.training


@pytest.mark.parametrize(("rate", "networks"), [(0.0, 4), (1.0, 4), (0.2, 0), (0.2, 65)])
def test_a_draw_that_makes_no_sense_is_refused(model: GPT, rate: float, networks: int) -> None:
    with pytest.raises(UsageError):
        next(dropout.thinned(model, ids(), rate, networks, seed=1))


# --- Addresses ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from partwise.errors import PartwiseError
    from partwise.studio.answers import mistake

    state = State(root=tmp_path_factory.mktemp("runs"))
    app = Starlette(routes=labs.routes(state), exception_handlers={PartwiseError: mistake})
    return TestClient(app)


def asked(client: Any, name: str, **sent: Any) -> Any:
    answer = client.post(f"/api/labs/{name}", json=sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: Any, name: str, **sent: Any) -> str:
    answer = client.post(f"/api/labs/{name}", json=sent)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["error"]["message"])


def test_a_stack_has_an_address(client: Any) -> None:
    found = asked(client, "stack", residual=True, norm="pre", initialisation="fan_in", layers=3)
    assert len(found["gradient"]) == 3
    assert found["seconds"] > 0
    assert "norm=mid is none of" in refused(
        client, "stack", residual=True, norm="mid", initialisation="fan_in"
    )
    assert "residual" in refused(client, "stack", norm="pre", initialisation="fan_in")


def test_a_race_comes_line_by_line(client: Any) -> None:
    sent = {"initialisation": "fan_in", "layers": 2, "steps": 10}
    answer = client.post("/api/labs/race", json=sent)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["norm"] for line in lines] == ["pre", "post"] * 3
    assert {"val_loss", "seconds"} <= set(lines[-1])
    # Whoever comes next finds the lane free.
    assert client.post("/api/labs/race", json=sent).status_code == 200
    assert "layers=0 is out of range" in refused(
        client, "race", initialisation="fan_in", layers=0, steps=10
    )


def test_a_race_whose_reader_has_gone_is_over(client: Any) -> None:
    sent = {"initialisation": "fan_in", "layers": 2, "steps": 1000}

    async def leave(receive_after: int) -> None:
        """Ask as a server would, and go after some lines."""
        body = json.dumps(sent).encode()
        lines = 0
        asked_for = False

        async def receive() -> dict[str, Any]:
            nonlocal asked_for
            if not asked_for:
                asked_for = True
                return {"type": "http.request", "body": body, "more_body": False}
            while lines < receive_after:
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal lines
            lines += message["type"] == "http.response.body"

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/labs/race",
            "raw_path": b"/api/labs/race",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "http_version": "1.1",
        }
        await client.app(scope, receive, send)

    alone(leave(2))
    short = {**sent, "steps": 5}
    deadline = time.monotonic() + PATIENCE
    while client.post("/api/labs/race", json=short).status_code != 200:
        assert time.monotonic() < deadline, "the lane is still taken"
        time.sleep(0.05)


def test_a_draw_that_makes_no_sense_is_refused_whole(client: Any) -> None:
    assert "dropout=1.0" in refused(client, "thinned", model="tiny", rate=1.0)


def test_a_run_made_anew_under_its_name_has_its_own_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def run(path: Path) -> Any:
        return SimpleNamespace(
            path=path,
            record=SimpleNamespace(created=created),
            reopen_text=lambda **named: opened.append(created) or created,
        )

    monkeypatch.setattr(labs, "Run", SimpleNamespace(open=run))
    lab = labs.Labs(State(root=tmp_path))
    for created in ("first", "first", "second"):
        assert lab._text() == created
    assert opened == ["first", "second"]


def test_norms_edges_and_thinned_networks_have_addresses(client: Any) -> None:
    found = asked(client, "norms", texts=3, length=4, width=5)
    assert len(found["input"]) == 12
    assert [one["norm"] for one in found["norms"]] == ["layernorm", "rmsnorm", "batchnorm"]

    found = asked(client, "edges", model="tiny", text="hello", layer=1, head=2, rate=0.3)
    assert len(found["weights"]) == len(found["dropped"]) == len(found["tokens"]) == 5
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in found["weights"])
    assert "head=9 is out of range; give 0 to 3" in refused(
        client, "edges", model="tiny", text="hello", head=9
    )

    for name in ("norms", "edges"):
        for change in ({"seed": 10**30}, {"seed": -1}, {"spread": 10**400, "rate": 10**400}):
            refused(client, name, model="tiny", text="hello", **change)

    answer = client.post("/api/labs/thinned", json={"model": "tiny", "networks": 1, "seed": 10**30})
    assert "seed=" in json.loads(answer.text.splitlines()[-1])["error"]["message"]
    answer = client.post("/api/labs/thinned", json={"model": "tiny", "networks": 3})
    first, *rest = [json.loads(line) for line in answer.text.splitlines()]
    assert set(first) == {"whole", "tokens"}
    assert [line["networks"] for line in rest] == [1, 2, 3]


def test_what_is_not_there_is_said(client: Any) -> None:
    assert client.get("/api/labs/translators").json() == []
    assert "no translator 'x'" in refused(client, "alignment", run="x", text="abc")
    assert "no lab 'nothing'" in refused(client, "nothing")
    assert "no model" in refused(client, "edges", model="run:../x", text="a")


def test_an_alignment_is_that_of_the_run(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from partwise.cli import main

    monkeypatch.chdir(tmp_path)
    command = "translate reverse --name turned --steps 2 --quiet --train.threads 1"
    assert main([*command.split(), "--data.task-pairs", "400"]) == 0
    own = TestClient(Starlette(routes=labs.routes(State(root=tmp_path / "runs"))))
    assert [run["name"] for run in own.get("/api/labs/translators").json()] == ["turned"]
    found = own.post("/api/labs/alignment", json={"run": "turned", "text": "abc"}).json()
    assert found["source"] == ["a", "b", "c", "END"]
    assert len(found["weights"]) == len(found["target"])
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found["weights"])
