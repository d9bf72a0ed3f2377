"""What a run would take before it starts: operations, memory, time, hardware, presets."""
