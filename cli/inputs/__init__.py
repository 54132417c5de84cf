"""From what the command line says to prompts, models, settings, grammars and endpoints."""
