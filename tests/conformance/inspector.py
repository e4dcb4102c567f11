"""The Inspector's command line lists everything this server has and calls every tool, over HTTP; one call over stdio too.

Run by run.sh: python tests/conformance/inspector.py MCP_INSPECTOR. Exit status 0 where all of it was answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "doors")]

from tests.doors.http_runner import serving  # noqa: E402
from tests.doors.tool_examples import EXAMPLES  # noqa: E402

from pinfold.operations import BY_TOOL  # noqa: E402

ONE_S = 180.0


class Inspector:
    def __init__(self, program: str, home: str) -> None:
        self._program = program
        self._env = {**os.environ, "HOME": home}
        self.failures: list[str] = []

    def ask(self, target: list[str], method: str, *options: str) -> Any:
        """Return what the Inspector prints of one request, None where it fails."""
        command = ["node", self._program, "--cli", *target, "--method", method, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ONE_S, env=self._env, stdin=subprocess.DEVNULL, check=False)
        try:
            assert done.returncode == 0
            return json.loads(done.stdout)
        except (AssertionError, ValueError):
            self.failures.append(f"{method} {' '.join(options)}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
            return None

    def call(self, target: list[str], tool: str, arguments: dict[str, Any]) -> Any:
        told = self.ask(target, "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        if told is not None and (told.get("isError") or not told["content"][0]["text"]):
            self.failures.append(f"{tool} {arguments}: {told}")
        return told


def main(program: str) -> int:
    with tempfile.TemporaryDirectory(prefix="pinfold-inspector-") as folder:
        os.chdir(folder)
        inspector = Inspector(program, folder)
        with serving(Path(folder) / "store.db", "--tools", "all", "--rate", "0", env={"PINFOLD_FILES": folder}) as server:
            web = ["--server-url", f"{server.url}/mcp", "--transport", "http"]
            listed = inspector.ask(web, "tools/list", "--strict") or {"tools": []}
            names = {tool["name"] for tool in listed["tools"]}
            called: set[str] = set()
            for tool, arguments in EXAMPLES:
                if tool == "undo":
                    patched = [row["seq"] for row in server.ask("log")["entries"] if "patched TSK1" in row["changes"]]
                    arguments = {"seq": patched[0]}
                if tool in called or tool not in names:  # it calls what is listed, by one name; all else only makes the next one possible
                    server.rpc("tools/call", {"name": tool, "arguments": arguments})
                else:
                    called.add(tool)
                    inspector.call(web, tool, arguments)
            for method, field in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates"), ("prompts/list", "prompts")):
                told = inspector.ask(web, method)
                if told is not None and not told.get(field):
                    inspector.failures.append(f"{method}: {told}")
            inspector.ask(web, "resources/read", "--uri", "pinfold://shared/status")
            inspector.ask(web, "prompts/get", "--prompt-name", "remember-this", "--prompt-args", "text=the sky is blue")
            status, err = server.end()
        if status or "Traceback" in err:
            inspector.failures.append(f"the server ended with {status}: {err}")
        if missing := names - called or {row.mcp for row in BY_TOOL.values() if row.mcp} - names:
            inspector.failures.append(f"not called or not listed: {sorted(missing)}")
        path = os.environ.get("PYTHONPATH")  # the Inspector starts servers in an environment of its own
        own = [sys.executable, "-m", "pinfold", "mcp", "--store", "memory://", "--session", "inspected", *(["-e", f"PYTHONPATH={path}"] if path else [])]
        inspector.call(own, "set", {"key": "a", "value": {"b": [1]}})
        print(f"{len(names)} tools listed, {len(called)} called, {len(inspector.failures)} failures")
        for failure in inspector.failures:
            print(failure, file=sys.stderr)
        return 1 if inspector.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
