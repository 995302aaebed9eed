"""OpenAPI 3.1 from the contracts: descriptors say what is sent, comments say what it means."""
