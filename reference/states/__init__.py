"""Recurrent state: a slot per request instead of a slot per token."""
