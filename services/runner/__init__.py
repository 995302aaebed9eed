"""The runner: drives turns by calling the authorities. It owns nothing and keeps no fact only in
memory."""
