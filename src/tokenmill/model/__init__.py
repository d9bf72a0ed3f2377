"""The GPT itself: its two architectures, what it costs, how it is saved, how it writes text."""
