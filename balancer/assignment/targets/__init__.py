"""Where tasks are to run in the end: what an assignment works towards."""
