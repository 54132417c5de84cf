"""The commands of `gen`, one module for each command: its own flags, and the function that runs it."""
