"""The model card: its facts, its wording, its templates and its pictures."""
