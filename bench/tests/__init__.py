"""Tests of the harness's arithmetic and parsing: `cd bench && python3 -m unittest`."""
