"""The systems that are compared: each module states a problem to one system and runs it."""
