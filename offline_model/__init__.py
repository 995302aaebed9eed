"""A Messages API peer for development and tests: a process of its own, behind a real socket."""
