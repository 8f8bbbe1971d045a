"""One run folder: create, open, train, resume, list, compare.

runs/<name>/run.toml            settings as they were used, versions, machine, git state
            tokenizer.json
            initial.safetensors only in a run that began from another model's weights
            origin/             small files of the imported model that it goes back to
            metrics.jsonl       one event a line
            checkpoints/        see `training/checkpoint.py`
            samples/            text sampled along the way
"""

from partwise.run.exported import Exported as Exported
from partwise.run.exported import export_run as export_run
from partwise.run.folder import Run as Run
from partwise.run.imported import begin_with as begin_with
from partwise.run.imported import import_folder as import_folder
from partwise.run.listing import Difference as Difference
from partwise.run.listing import RunSummary as RunSummary
from partwise.run.listing import compare as compare
from partwise.run.listing import find as find
from partwise.run.listing import list_runs as list_runs
from partwise.run.listing import summarise as summarise
from partwise.run.training import Sampled as Sampled
