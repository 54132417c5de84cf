"""Turns options of the command line into prompts, models, settings, grammars and chat templates."""
