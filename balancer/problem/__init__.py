"""What an operation asks for and allows: operations, rules, budgets, movement cost."""
