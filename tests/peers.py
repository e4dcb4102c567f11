"""Other systems, each in an environment of its own in pytest's cache folder, made once; where they cannot be had that is said in red."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NoReturn

import pytest

INSTALL_S = 240


def python_with(request: pytest.FixtureRequest, package: str, python: str = sys.executable) -> Path:
    """Return the Python of an environment that has exactly this package (`name==version`). Skips, loudly, where PyPI has it not."""
    folder = _folder(request, package)
    made = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (folder / "installed").exists():
        if python == sys.executable:
            venv.create(folder, with_pip=True, clear=True)
        else:
            subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True, timeout=INSTALL_S)
        _install(request, package, [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package])
        (folder / "installed").write_text(package)
    return made


def node_modules_with(request: pytest.FixtureRequest, package: str) -> Path:
    """Return the node_modules folder that has exactly this package (`name@version`). Skips, loudly, where npm has it not."""
    npm = shutil.which("npm")
    if npm is None:
        _missing(request, package, "there is no npm")
    folder = _folder(request, package)
    if not (folder / "installed").exists():
        _install(request, package, [str(npm), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), package])
        (folder / "installed").write_text(package)
    return folder / "node_modules"


def newer_python(request: pytest.FixtureRequest, package: str, least: tuple[int, int]) -> str:
    """Return a Python of at least this version: this one, or one on the path. Skips, loudly, where there is none."""
    if sys.version_info[:2] >= least:
        return sys.executable
    named = [shutil.which(f"python{least[0]}.{minor}") for minor in range(20, least[1] - 1, -1)]
    kept = [str(path) for minor in range(20, least[1] - 1, -1) for path in Path.home().glob(f".pyenv/versions/{least[0]}.{minor}.*/bin/python")]
    for found in [*named, *kept]:
        if found and subprocess.run([found, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
            return found
    _missing(request, package, f"it needs Python {least[0]}.{least[1]}")


def _folder(request: pytest.FixtureRequest, package: str) -> Path:
    if request.config.cache is None:
        pytest.skip("pytest runs without a cache")
    return Path(request.config.cache.mkdir("".join(char if char.isalnum() or char in ".-" else "-" for char in package).strip("-")))


def _install(request: pytest.FixtureRequest, package: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"no answer in {INSTALL_S} s"
    if why:
        _missing(request, package, why)


def _missing(request: pytest.FixtureRequest, package: str, why: str) -> NoReturn:
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\n{package} COULD NOT BE INSTALLED: nothing was compared with it. {why}", red=True, bold=True)
    pytest.skip(f"{package} could not be installed: {why}")
