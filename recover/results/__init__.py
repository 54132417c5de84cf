"""What a recovery returns, and the files that hold it."""
