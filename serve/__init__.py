"""An HTTP server for one model, which answers many requests at a time."""
