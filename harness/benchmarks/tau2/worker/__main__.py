"""Usage: ``python -m worker describe DOMAIN...`` or ``python -m worker serve SOCKET DOMAIN...``."""

import json
import sys

from . import installed


def main() -> None:
    """Describe what is installed, or serve it."""
    action, *rest = sys.argv[1:]
    if action == "describe":
        print(json.dumps(installed.describe(rest)))
        return
    from . import serve

    serve.serve(rest[0], rest[1:])


if __name__ == "__main__":
    main()
