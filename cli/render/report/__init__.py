"""Runs as a page of their own: one HTML file with the text, and for each token how it was chosen."""
