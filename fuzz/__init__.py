"""Long jobs over `properties`: run, replay and minimise, from the command line."""
