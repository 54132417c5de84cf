"""`gen batch`: from lines of requests to lines of results."""
