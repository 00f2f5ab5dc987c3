"""Balances load and collocates communicating units (Madsen et al., ICDE 2017)."""
