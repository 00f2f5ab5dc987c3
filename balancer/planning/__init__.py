"""From a better placement to a plan: steps in a safe order, bounds, reasons, remedies."""
