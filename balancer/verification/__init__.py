"""A second opinion on plans that shares no code with search and planning."""
