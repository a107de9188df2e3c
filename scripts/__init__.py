"""One argparse program per rule; the packages beside them hold what the programs share."""
