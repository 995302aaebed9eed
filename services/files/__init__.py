"""The one store of files: what the bytes are, who owns them, and how long they stay."""
