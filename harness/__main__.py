"""`python -m harness` is `slca-eval`."""

from harness.cli import main

main()
