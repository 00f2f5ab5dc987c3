"""What benchmarks share: processes, the judgement of a placement, tables, peers."""
