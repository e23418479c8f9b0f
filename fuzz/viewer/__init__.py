"""Pages to look at: a trace step by step, and the state of a campaign; each one HTML file."""
