"""How long threads of OpenMP wait awake for each other; torch's and those of the C code alike."""

import os
import platform

# GNU's OpenMP waits awake for up to 300,000 looks, which on x86 is milliseconds. Beside another
# busy process that wants the core, training in two threads then has 0.4 to 0.7 of the tokens a
# second that it has where a thread sleeps after a thousand looks, tens of microseconds; on a quiet
# machine that costs no more than the noise, 3 to 4 % (benchmarks/beside.py). What a look takes on
# other processors was not measured; other makers' OpenMP do not know the name.
LOOKS = "1000"

_X86 = ("x86_64", "amd64")


def wait_briefly() -> None:
    """Have threads that wait soon sleep, unless the user's surroundings say how they wait.

    OpenMP looks once, when torch is loaded; processes that this one starts look too.
    """
    if platform.machine().lower() not in _X86:
        return
    policy, looks = os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT")
    if policy is None and looks is None:
        os.environ["GOMP_SPINCOUNT"] = LOOKS
