"""Paired comparison of an adapter with its base model: pure functions of counts and rows."""
