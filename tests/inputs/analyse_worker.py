"""One process of the real run: `analyse_worker.py STORE LOG ROOT`. Every analysis that is really done is a line in LOG."""

import ast
import os
import sys
from pathlib import Path

from pinfold import Memory


def main(store: str, log: str, root: str) -> None:
    os.chdir(root)

    def done(what: str) -> None:
        with open(log, "ab", buffering=0) as file:
            file.write(f"{what}\n".encode())

    def analyse(path: str) -> dict[str, int]:
        done(path)
        tree = ast.parse(Path(path).read_bytes())
        return {"functions": sum(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)), "size": os.path.getsize(path)}

    with Memory(store) as memory:
        session = memory.session("run")
        files = sorted(str(path) for path in Path("src").rglob("*.py"))
        parts = {path: session.once(f"analysis:{path}", lambda path=path: analyse(path), inputs=[f"file:{path}"], timeout_s=60) for path in files}

        def total() -> int:
            done("total")
            return sum(part["functions"] for part in parts.values())

        def listing() -> list[str]:
            done("tree")
            return files

        print(session.once("total", total, inputs=[f"slot:analysis:{path}" for path in files], timeout_s=60))
        session.once("tree", listing, inputs=["tree:src"], timeout_s=60)


main(*sys.argv[1:])
