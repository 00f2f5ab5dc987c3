"""Packs items into as few bins as needed, with as little change as possible."""
