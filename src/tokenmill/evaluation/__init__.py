"""What a trained model can do: losses, answers to fixed prompts, and a report of both."""
