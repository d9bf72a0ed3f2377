"""Find a trained model (an epoch, a revision, an experiment, a folder) and let it write."""
