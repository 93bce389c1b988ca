"""Messages of the public API, made from the .proto files at build time."""
