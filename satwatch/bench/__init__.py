"""Benchmarks: what satwatch costs, measured on the machine at hand beside what it's compared with."""
