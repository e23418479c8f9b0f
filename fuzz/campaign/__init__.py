"""Fuzz campaigns: rounds of commands that learn from what they reached, for hours, in processes.

A coordinator hands tasks to workers and keeps what they report; a worker runs one round at a time.
Whatever is found is a file before anybody hears of it, so any process may die at any moment.
"""
