"""Conversion of events, settings and tables into output for a person or a program."""
