"""How words of a command line are read where typer has no setting for it, and what is said of wrong ones."""
