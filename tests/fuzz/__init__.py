"""`make fuzz`: odd inputs for everything that reads a file, a text or an answer from elsewhere."""
