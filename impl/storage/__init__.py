"""Pools that hold the bytes which slots name."""
