"""The transcript: what the provider was sent and answered, byte for byte, in a hash chain."""
