"""``infcalc`` and ``python -m infcalc``."""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def main() -> None:
    """Run the command line and end the process with its code.

    A command lives for a twentieth of a second: collecting garbage and taking the interpreter apart would be a sixth of
    it. Nothing here relies on either; files are written and closed before.
    """
    gc.disable()
    from infcalc.cli.app import run  # noqa: PLC0415 - importing infcalc must not import the command line

    code = run(sys.argv[1:])
    with contextlib.suppress(OSError):
        # stdout was flushed, and its problems told, by the command line.
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
