"""Pages and lists of a large store: how long each takes, and what the server needs for them."""
