"""Real clients send to a real server, and queries must return every field that was sent: `bench/run --only clients`.

Runs with the Python of bench/.venv, which has OpenTelemetry's SDK, Arrow and a reader of Delta tables.
"""
