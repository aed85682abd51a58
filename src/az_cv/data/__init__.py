"""Draws that ship with the package."""
