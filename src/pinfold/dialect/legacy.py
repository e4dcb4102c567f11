"""Pipe rows of MemNet -> records."""

from __future__ import annotations

from pinfold.dialect.parse import Op, Problem


def translate(pipes: list[tuple[int, str]], verb: str, columns: dict[str, tuple[str, ...]]) -> tuple[list[Op], list[Problem]]:
    return [], []
