"""The closed world of the demo: generated tasks, experts that solve them, and the tiny policy that imitates them."""
