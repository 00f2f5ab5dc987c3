"""Shared by all benchmarks: processes, the judgement of a placement, tables, peers."""
