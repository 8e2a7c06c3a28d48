"""OpenAI-compatible HTTP: a client of `tokenline.client`, as the command line is."""
