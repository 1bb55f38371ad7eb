"""Tests the arithmetic and the parsers of the harness: `cd bench && python3 -m unittest`."""
