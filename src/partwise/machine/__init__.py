"""What this machine is and can do: described, measured once, and never guessed."""

from partwise.machine.allocator import keep_freed as keep_freed
from partwise.machine.choices import pick_device as pick_device
from partwise.machine.choices import pick_precision as pick_precision
from partwise.machine.compiler import CompileCheck as CompileCheck
from partwise.machine.compiler import can_compile as can_compile
from partwise.machine.compiler import compile_check as compile_check
from partwise.machine.facts import cores as cores
from partwise.machine.facts import describe as describe
from partwise.machine.facts import git_state as git_state
from partwise.machine.facts import memory_bytes as memory_bytes
from partwise.machine.measure import Measured as Measured
from partwise.machine.measure import measured as measured
from partwise.machine.peaks import peak_flops as peak_flops
