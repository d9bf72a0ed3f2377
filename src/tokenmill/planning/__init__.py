"""What training would take in time, memory and money, and a training for a text and a time; known
configurations, and params.yaml with other values."""
