"""Conversion of the command line's options into prompts, models, settings, grammars and chat templates."""
