"""What makes the pages of ``docs/generated``; see ``docs/generate.py``."""
