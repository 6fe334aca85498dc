"""Engines looked at over HTTP, and where they are listed."""
