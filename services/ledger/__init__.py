"""The ledger: what clients see, who may run, and when a turn is over."""
