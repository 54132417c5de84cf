"""The completions of values: for shells, which Typer asks, and for the lines of a chat."""
