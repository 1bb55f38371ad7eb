"""The harness of `bench/run` and `bench/conformance`: standard library only, Linux only."""
