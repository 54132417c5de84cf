"""The flags of the commands, each written once, and the checks that need neither a preset nor a model."""
