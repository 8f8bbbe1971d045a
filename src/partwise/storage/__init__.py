"""Files that are always whole: written beside their place, synced and renamed, and checksummed.

A reader sees the old content or the new, never a part of either, whenever the writer is killed or
the disk fills up. Nothing is ever unpickled: weights are safetensors, everything else JSON or TOML.
"""

from partwise.storage.files import read_json as read_json
from partwise.storage.files import read_small as read_small
from partwise.storage.files import try_output as try_output
from partwise.storage.files import write_atomic as write_atomic
from partwise.storage.files import write_json as write_json
from partwise.storage.files import write_output as write_output
from partwise.storage.folders import cache_folder as cache_folder
from partwise.storage.folders import data_folder as data_folder
from partwise.storage.folders import require_free as require_free
from partwise.storage.folders import sweep as sweep
from partwise.storage.folders import write_folder as write_folder
from partwise.storage.locks import lock as lock
from partwise.storage.names import cleaned as cleaned
from partwise.storage.names import safe_name as safe_name
from partwise.storage.tensors import read_tensors as read_tensors
from partwise.storage.tensors import refuse_pickle as refuse_pickle
from partwise.storage.tensors import sha256_file as sha256_file
from partwise.storage.tensors import write_tensors as write_tensors
