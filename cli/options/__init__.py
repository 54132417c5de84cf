"""The flags of the commands, each written once, with the checks that need neither a preset nor a model.

`flag` declares a field of an options class; `takes_options` makes Typer's signature from such classes. The groups
that commands share are in prompt, sampling, model and output; batch and score hold the flags that workers of a
cluster read, too. The flags of a single command are in its module in commands/.
"""
