"""Thin runners around :mod:`poolsm`: they observe, append and carry out; they decide nothing."""
