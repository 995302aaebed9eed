"""Measures every figure of the speed table beside its floor, and writes `bench/report.md`."""
