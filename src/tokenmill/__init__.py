"""TokenMill: raw text in, a trained and measured GPT out, and no job ever run twice."""
