"""Recurrent states and what rides along: pools of bytes addressed by state slot."""
