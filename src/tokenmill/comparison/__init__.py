"""Epochs and experiments beside each other: numbers, parameters, answers."""
