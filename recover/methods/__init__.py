"""The methods of recovery, one module each. A method is a function of a task and of the tokens to recover."""
