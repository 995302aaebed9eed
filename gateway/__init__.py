"""REST and SSE in, gRPC out. The gateway holds no state and decides nothing: routes, shapes and
statuses come from the contracts."""
