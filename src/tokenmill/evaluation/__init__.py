"""What a trained model can do: losses on fixed documents and answers to fixed prompts."""
