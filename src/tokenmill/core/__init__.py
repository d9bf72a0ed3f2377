"""The modules that every other one uses: errors, files written whole, parameters, and the paths of
artefacts.

Nothing here needs PyTorch.
"""
