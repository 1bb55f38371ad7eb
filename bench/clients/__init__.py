"""Real clients send to a real server, and every field that they sent must come back: `bench/run --only clients`.

Runs with the Python of bench/.venv, which has OpenTelemetry's SDK, Arrow and a reader of Delta tables.
"""
