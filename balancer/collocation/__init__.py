"""Load balance and collocation of communicating units (Madsen et al., ICDE 2017)."""
