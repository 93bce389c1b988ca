"""The same for asyncio."""
