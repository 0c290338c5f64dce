"""Fetching a pinned checkpoint from the model hub; why this is not the hub's own client: docs/decisions/0007."""
