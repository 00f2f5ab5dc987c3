"""The page: plain ES modules, one stylesheet, and what serves them."""
