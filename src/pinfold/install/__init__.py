"""Registering pinfold with MCP clients: a table of clients, edits that keep every other byte, hooks for Claude Code."""
