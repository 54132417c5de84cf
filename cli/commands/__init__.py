"""The commands of `gen`, one module each: read the options, build, iterate, render."""
