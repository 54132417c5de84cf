"""Presets of other tools, a module for each tool."""
