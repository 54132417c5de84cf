"""The methods, one module each: a function of a task and of the tokens to recover."""
