"""`python -m logitsmith.cli` is `gen`."""

from .app import main

main()
