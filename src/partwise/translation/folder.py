"""A translator: one run folder like those of texts, with pairs in place of a text.

runs/<name>/run.toml            kind = "partwise.translation"; settings as they were used
            tokenizer.json      for both languages
            test.tsv            the pairs that are held out to score by
            scores.json         how good the translations of their sources are
            metrics.jsonl, checkpoints/, samples/    as in every run
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from partwise.errors import ConfigError, RunError
from partwise.machine import git_state, pick_device
from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.run.kept import TOKENIZER, kept_tokenizer, kept_weights
from partwise.run.places import (
    free_place,
    refuse_taken,
    require_place,
    this_machine,
    versions,
)
from partwise.run.record import Resolved
from partwise.run.training import METRICS, SAMPLES, Sampled, keep_sample, train_in
from partwise.sampling.search_config import SearchConfig
from partwise.sampling.translate import translate
from partwise.storage import (
    lock,
    read_json,
    safe_name,
    sweep,
    write_atomic,
    write_folder,
    write_json,
)
from partwise.storage.faults import reading
from partwise.text.pair_batches import EncodedPairs, PairBatches, PairWindows
from partwise.text.pair_config import PairConfig
from partwise.text.pair_prepare import PreparedPairs, prepare_pairs
from partwise.text.pairs import Pair
from partwise.text.tokenizers import Tokenizer
from partwise.text.turns import in_turn
from partwise.training.checkpoint import Which, load_weights
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.evaluate import never
from partwise.training.events import Event, Said
from partwise.training.listeners import read_metrics
from partwise.training.plan import check_ends
from partwise.translation.building import build_model, layout, marks
from partwise.translation.pairs import held_out_file, pairs_record, prepare_again
from partwise.translation.record import (
    TranslationRecord,
    read_translation,
    write_translation,
)
from partwise.translation.score import Score, copied, scored
from partwise.translation.shape import Shape, longest, with_vocabulary

TEST = "test.tsv"
SCORES = "scores.json"

# Held-out sources that are translated along the way.
SHOWN = 3

Report = Callable[[int, int], None]


def _unheard(done: int, total: int) -> None:
    """Nobody listens."""


@dataclass
class Translation:
    """One translator's run folder.

    Args:
        path: the folder.
        record: what its `run.toml` says.
        prepared: the pairs, when they are ready already; else they are prepared when needed.
    """

    path: Path
    record: TranslationRecord
    prepared: PreparedPairs | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        root: Path | str,
        name: str | None,
        pairs: str,
        model: Shape,
        train: TrainConfig,
        data: PairConfig,
        *,
        prepared: PreparedPairs | None = None,
    ) -> "Translation":
        """Make a run folder, once everything in it is known to fit together.

        Args:
            root: the folder of runs.
            name: the run's name; None makes one from the pairs' and the date.
            pairs: what `open_pairs` takes.
            model: an encoder-decoder, or a decoder alone; its vocab_size becomes the tokenizer's,
                with PAD, START and END.
            train: the training.
            data: columns, tokenizer and what is held out.
            prepared: the pairs, when `prepare_pairs` gave them already.

        Raises:
            PartwiseError: a setting, the pairs or the name cannot be used, or the name is taken;
                nothing is written then.
        """
        root = Path(root)
        require_place(name, root)
        check_ends(train)
        _check_whole(train)
        pick_device(train.device)
        prepared = prepared or prepare_pairs(pairs, data, longest=longest(model))
        model = with_vocabulary(model, prepared.tokenizer.vocab_size)
        record = TranslationRecord(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            text=pairs_record(pairs, prepared, model),
            model=model,
            train=train,
            data=data,
            resolved=None,
            versions=versions(),
            machine=this_machine(),
            git=git_state(),
        )
        # In turn, as the other runs in this folder.
        with in_turn(root / ".lock"):
            sweep(root)
            path = free_place(root, prepared.name) if name is None else root / safe_name(name)
            refuse_taken(path)
            with write_folder(path, over=False) as folder:
                write_translation(folder, record)
                write_atomic(folder / TOKENIZER, prepared.tokenizer.to_json().encode("utf-8"))
                write_atomic(folder / TEST, held_out_file(prepared.test))
                (folder / "checkpoints").mkdir()
                (folder / SAMPLES).mkdir()
        return cls(path, record, prepared)

    @classmethod
    def open(cls, path: Path | str) -> "Translation":
        """The translator in a folder.

        Raises:
            RunError: it is none, is damaged, or is of a newer format.
        """
        return cls(Path(path), read_translation(Path(path)))

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.absolute().name

    @property
    def system(self) -> str:
        """What kind of model translates."""
        two = isinstance(self.record.model, Seq2SeqConfig)
        return "encoder-decoder" if two else "decoder-only"

    def train(
        self,
        resume: bool = False,
        stop: Callable[[], bool] = never,
        *,
        settings: TrainConfig | None = None,
        pairs: str | None = None,
    ) -> Iterator[Event | Sampled]:
        """Train, and write metrics, samples and checkpoints into the folder.

        Args:
            resume: go on from the last checkpoint, if there is one; the bits at the end are those
                of a run that was never interrupted (on the CPU, with the same version of torch).
            stop: asked before every step; True saves and ends.
            settings: the training from here on; None: as it was.
            pairs: where the pairs are now, when they are no longer where they were.

        Yields:
            What happens, the samples among it; the last is a Finished.

        Raises:
            RunError: another process trains here, the run has begun already (without `resume`), or
                the pairs are not the ones that it learns.
            PartwiseError: see `training.loop.train`.
        """
        with lock(self.path / ".lock"):
            for folder in (self.path, self.path / SAMPLES):
                sweep(folder)
            begun = any((self.path / "checkpoints").glob("step-*"))
            if begun and not resume:
                raise RunError(
                    "{run} has checkpoints already; go on with: partwise translate {run} --resume, "
                    "or train under another name",
                    run=self.path,
                )
            prepared = self.prepared or prepare_again(
                self.record, self.tokenizer(), run=self.path, pairs=pairs
            )
            _check_whole(settings or self.record.train)
            if settings is not None and settings != self.record.train:
                check_ends(settings)
                pick_device(settings.device)
                self.record = dataclasses.replace(self.record, train=settings)
                write_translation(self.path, self.record)
            if not begun:
                yield from map(Said, prepared.summary)
            config = self.record.train
            torch.manual_seed(config.seed)
            model = build_model(self.record.model)

            def sample(step: int) -> Sampled:
                sources = [source for source, _ in prepared.test[:SHOWN]]
                greedy = SearchConfig(beam=1)
                written = self._translated(model, prepared.tokenizer, sources, greedy)
                lines = [f"{a}\n  → {b}\n" for a, b in zip(sources, written, strict=True)]
                return keep_sample(self.path, step, "".join(lines))

            yield from train_in(
                self.path,
                self.record,
                model,
                self._data(prepared.train, prepared.validation),
                resume=resume,
                stop=stop,
                settle=self._settle,
                sample=sample if config.sample_chars else None,
            )

    def model(self, which: Which = "best", device: str = "cpu") -> Seq2Seq | GPT:
        """The trained model: its averaged weights where a mean was kept.

        Args:
            which: "best" by validation loss, or "last"; the last when nothing was evaluated yet.
            device: where to put it (see `pick_device`).

        Raises:
            RunError: there is no checkpoint yet.
            StorageError: it is damaged.
        """
        weights = kept_weights(self.path, which)
        model = build_model(self.record.model)
        load_weights(model, weights)
        return model.to(pick_device(device)).eval()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with.

        Raises:
            RunError: it is another one than the run was created with.
            StorageError, TextError: it is missing or damaged.
        """
        return kept_tokenizer(self.path, self.record.text)

    def metrics(self) -> list[dict[str, Any]]:
        """The events of `metrics.jsonl`, oldest first."""
        return list(read_metrics(self.path / METRICS))

    def translate(
        self,
        texts: Sequence[str],
        config: SearchConfig | None = None,
        *,
        which: Which = "best",
        device: str = "cpu",
        report: Report = _unheard,
    ) -> list[str]:
        """A translation of each text.

        Args:
            texts: in the language of the sources.
            config: how the best translation is looked for; None: beam search.
            which, device: see `model`.
            report: is told how many texts are done, of how many.

        Raises:
            TextError: a text has characters that the tokenizer does not know.
            SamplingError: a text is longer than the model reads.
            RunError: there is no checkpoint yet.
        """
        model = self.model(which, device)
        return self._translated(
            model, self.tokenizer(), texts, config or SearchConfig(), report=report
        )

    def test_pairs(self) -> list[Pair]:
        """The pairs that are held out to score by.

        Raises:
            RunError: they are not the ones that the run was created with.
            StorageError: they cannot be read.
        """
        path = self.path / TEST
        with reading(path):
            data = path.read_bytes()
        known = self.record.text
        lines = data.decode("utf-8", "replace").split("\n")
        pairs = [tuple(line.split("\t")) for line in lines if line]
        right = len(pairs) == known.test_pairs and all(len(pair) == 2 for pair in pairs)
        if not right or known.test_mark not in ("", hashlib.sha256(data).hexdigest()):
            raise RunError(
                "{path} does not hold the {count} pairs that it was written with; bring it back "
                "from a copy",
                path=path,
                count=known.test_pairs,
            )
        return [(pair[0], pair[1]) for pair in pairs]

    def score(
        self,
        config: SearchConfig | None = None,
        *,
        which: Which = "best",
        device: str = "cpu",
        report: Report = _unheard,
    ) -> tuple[Score, Score]:
        """How good the translations of held-out sources are, and how good copies would be.

        Both are written into `scores.json`.

        Args:
            config: how the best translation is looked for; None: beam search.
            which, device: see `model`.
            report: is told how many texts are done, of how many.
        """
        pairs = self.test_pairs()
        sources = [source for source, _ in pairs]
        written = self.translate(sources, config, which=which, device=device, report=report)
        both = scored(self.system, written, pairs), copied(pairs)
        value = {
            "search": dataclasses.asdict(config or SearchConfig()),
            "scores": [dataclasses.asdict(score) for score in both],
            "translations": written,
        }
        write_json(self.path / SCORES, value, kind="partwise.scores", version=1)
        return both

    def scores(self) -> list[Score]:
        """What `score` found; nothing before that."""
        return [Score(**score) for score in self._scored().get("scores", [])]

    def translations(self) -> list[str]:
        """What `score` wrote for each held-out source; nothing before that."""
        return [str(text) for text in self._scored().get("translations", [])]

    def _scored(self) -> dict[str, Any]:
        path = self.path / SCORES
        if not path.exists():
            return {}
        _, value = read_json(path, kind="partwise.scores", newest=1)
        return dict(value)

    def _translated(
        self,
        model: Seq2Seq | GPT,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        config: SearchConfig,
        *,
        report: Report = _unheard,
    ) -> list[str]:
        shape = self.record.model
        return translate(
            model, tokenizer, marks(shape), texts, config, longest=longest(shape), report=report
        )

    def _data(self, train: EncodedPairs, validation: EncodedPairs) -> Data:
        known = layout(self.record.model)
        config = self.record.train
        batches = PairBatches(train, known, config.batch_size, config.seed)
        # So that an epoch is every pair once, whatever the mean length is rounded to.
        each = batches.context_length * train.count
        return Data(batches, validation, PairWindows(known), each)

    def _settle(self, chosen: Resolved) -> None:
        self.record = dataclasses.replace(self.record, resolved=chosen)
        write_translation(self.path, self.record)


def _check_whole(train: TrainConfig) -> None:
    """Refuse a training of short texts first.

    Raises:
        ConfigError: it is one.
    """
    if train.short_context is not None:
        raise ConfigError(
            "short_context={value} would cut texts, and pairs are read whole; leave it out",
            value=train.short_context,
        )
