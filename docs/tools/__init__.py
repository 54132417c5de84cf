"""Makes the parts of the manual that come from the code."""
