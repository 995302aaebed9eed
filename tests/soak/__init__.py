"""Load and faults at once: a split system under open streams and writers while its parts die."""
