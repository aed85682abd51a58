"""Exact solves of linear systems."""
