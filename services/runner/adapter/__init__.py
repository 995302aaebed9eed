"""The provider adapter: one request as bytes in, one answer as exact blocks out."""
