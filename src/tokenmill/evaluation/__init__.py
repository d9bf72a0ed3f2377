"""What a trained model can do: losses on fixed sequences and answers to fixed prompts."""
