"""`python -m logitsmith.cli` is `gen`."""

from . import main

main()
