"""The benchmark harness behind `bench/run`: standard library only, Linux only."""
