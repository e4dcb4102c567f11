"""Pins of what a project is made of: its code, its SysML and atopile models, its skills. Read again, they follow the files."""
