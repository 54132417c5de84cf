"""`gen batch`: lines of requests in, lines of results out."""
