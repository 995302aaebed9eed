"""Generated from the contracts of `counterfoil.files.v1`."""
