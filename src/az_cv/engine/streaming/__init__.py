"""Estimates from draws that do not fit in memory: sums over pieces of the chains."""
