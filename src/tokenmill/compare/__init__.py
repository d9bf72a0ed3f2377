"""Runs side by side: epochs, experiments, branches."""
