"""Function names as the model sees them: APIs allow no dots, and BFCL's functions have them.

One flag decides for both sides: a mode that sends names with underscores is scored by the official checker with
underscores (`worker.scorer`), one that sends them as they are is scored as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Mode = Literal["fc", "prompt"]


def sent(name: str, mode: Mode) -> str:
    """The name that the model is given.

    Example:
        >>> sent("math.factorial", "fc"), sent("math.factorial", "prompt")
        ('math_factorial', 'math.factorial')
    """
    return name.replace(".", "_") if mode == "fc" else name


def originals(names: Iterable[str], mode: Mode) -> dict[str, str]:
    """Sent name to the benchmark's own name, for one request.

    Raises:
        ValueError: two functions of the request would be sent under one name.

    Example:
        >>> originals(["math.factorial", "area"], "fc")
        {'math_factorial': 'math.factorial', 'area': 'area'}
    """
    back: dict[str, str] = {}
    for name in names:
        if back.setdefault(sent(name, mode), name) != name:
            raise ValueError(f"{name!r} and {back[sent(name, mode)]!r} are both sent as {sent(name, mode)!r}")
    return back
