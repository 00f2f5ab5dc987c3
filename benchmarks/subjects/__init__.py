"""The systems that are compared: each module states one problem to one system and runs it."""
