"""Where the active tasks are to be in the end: Kafka's own procedure, or goals."""
