"""Generated from the contracts of `counterfoil.transcript.v1`."""
