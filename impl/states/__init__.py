"""Recurrent states: a slot for each request, pools of bytes, and what rides along."""
