"""What is measured: one module for each family of figures."""
