"""The gateway: REST and SSE in front of small servicers of the real contracts."""
