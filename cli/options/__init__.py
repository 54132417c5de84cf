"""The flags that several commands share, with the checks that need neither a preset nor a model.

`flag` declares a field of an options class, and `takes_options` derives the signature for Typer from the class.
The flags of a single command are in the module of the command in commands/; those of `gen decide`, which has
several modules, are in `decide`.
"""
