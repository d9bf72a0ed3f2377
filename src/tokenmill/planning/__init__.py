"""What training would take before it starts: time, memory, money; presets; and what limits a
step."""
