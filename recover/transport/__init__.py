"""Requests over HTTP: time-outs, new tries, and texts without secrets."""
