"""What every module shares: errors, files written whole, parameters, and where artefacts are.

Nothing here needs PyTorch.
"""
