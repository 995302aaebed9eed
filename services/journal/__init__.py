"""The journal: every side effect, its state, its outcome, and what the model sees of it."""
