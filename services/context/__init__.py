"""The context authority: what the model sees next, and what it saw."""
