"""What a model reads before it has called anything: tokens of `tools/list`, ours by toolset and the peers', counted exactly.

Each server runs as its users start it and is asked over stdio; the tools are counted as compact JSON in o200k tokens (the
extra `tokens`), which is what `tests/doors/test_mcp.py` holds to its bounds. Peers run in environments of their own.
Run: python -m benchmarks.listing
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import WrongAnswer
from benchmarks.mcp import Peer
from benchmarks.peers import PeerMissing, install

TOOLSETS = ("core", "standard", "all", "pmll", "memnet")
PEERS = (("pmll-memory-mcp", "2.0.4", "pmll-memory-mcp"), ("memnet-llm[mcp]", "0.3.2", "memnet-mcp"), ("memnet-llm[mcp]", "0.19.27", "memnet-mcp"))
"""(package, version, command)."""


def tools_of(command: list[str], folder: str) -> list[dict[str, Any]]:
    """Return the tools a server lists."""
    peer = Peer(command, cwd=folder, env={**os.environ, "HOME": folder, "XDG_DATA_HOME": folder})
    try:
        return list(peer.begin()["tools"])
    finally:
        peer.end()


def bench_listing(peers: bool = True) -> list[dict[str, Any]]:
    """Return a row for each server: its tools and what listing them costs. Raises WrongAnswer where one lists none."""
    import bpe_openai

    encode = bpe_openai.get_encoding("o200k_base").encode_ordinary
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pinfold-listing-") as folder:

        def row(name: str, command: list[str]) -> None:
            tools = tools_of(command, folder)
            if not all(tool.get("name") and tool.get("inputSchema") for tool in tools) or not tools:
                raise WrongAnswer(f"tokens of tools/list: {name} lists no tools, or some without name and schema")
            told = json.dumps({"tools": tools}, separators=(",", ":"), ensure_ascii=False)
            rows.append({"server": name, "tools": len(tools), "tokens": len(encode(told))})

        for toolset in TOOLSETS:
            for structured in ("off", "on"):
                name = f"pinfold {toolset}" + (", structured" if structured == "on" else "")
                row(name, [sys.executable, "-m", "pinfold", "mcp", "--tools", toolset, "--structured", structured, "--store", "memory://", "--session", "s"])
        for package, version, command in PEERS if peers else ():
            try:
                row(f"{package} {version}", [str(Path(install(package, version)).with_name(command))])
            except PeerMissing as missing:
                rows.append({"server": f"{package} {version}", "left_out": str(missing)})
    return rows


if __name__ == "__main__":
    for found in bench_listing():
        print(json.dumps(found))
