"""Generated from the contracts of `buf.validate`."""
