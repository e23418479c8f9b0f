"""The host tier: slots, bytes and transfers in the host's memory (spec §4 of the host prefix)."""
