"""Minibatch training."""
