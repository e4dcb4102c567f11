"""Reading what the state holds: pure functions over it, everything derived."""
