"""Benchmarks: every speed that is claimed comes from here."""
