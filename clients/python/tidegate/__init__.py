"""Rate limits by a Tidegate server (`asgi`, `wsgi`) and polite retries for callers (`retry`)."""
