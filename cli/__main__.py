"""The entry point of `python -m logitsmith.cli`, which runs `gen`."""

from . import main

main()
