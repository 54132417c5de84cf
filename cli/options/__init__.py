"""The flags of the commands, each written once, with the checks that need neither a preset nor a model.

`flag` declares a field of an options class; `takes_options` makes Typer's signature from such classes. The groups
that commands share are in prompt, sampling, grammar, length, model, output and endpoint. The other modules are
named after the command whose options they hold."""
