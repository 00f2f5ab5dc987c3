"""What is asked and what is allowed: operations, rules, budgets, movement cost."""
