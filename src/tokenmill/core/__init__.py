"""What every stage shares: files, parameters, and the formats in which one stage hands its results
to the next.

Nothing here needs PyTorch.
"""
