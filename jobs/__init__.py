"""From what is asked to a request, and files of requests."""
