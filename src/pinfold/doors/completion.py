"""`pinfold completion bash|zsh|fish`: a small script of verbs and flags, made from the operations table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pinfold.doors.arguments import PLAIN, WITH_VALUE, Parser, flag_of
from pinfold.doors.cli import OWN_VERBS, write
from pinfold.doors.help import summary_of

SHELLS = ("bash", "zsh", "fish")
_OWN_FLAGS = {
    "once": ("--ttl", "--lease", "--timeout", "--tool", "--arguments"),
    "install": ("--scope", "--dry-run", "--print", "--env", "--hooks", "--hook-tools", "--edit", "--force"),
    "uninstall": ("--scope", "--dry-run", "--edit", "--force"),
    "serve": ("--background", "--status", "--stop", "--tcp", "--http", "--host", "--port", "--token-file"),
    "top": ("--once", "--interval"),
}


def run_completion(words: Sequence[str]) -> int:
    parser = Parser("completion", "bash|zsh|fish", 'Print a completion script: eval "$(pinfold completion bash)", or save it where your shell looks.')
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if len(bare) != 1 or bare[0] not in SHELLS:
        parser.error(f"name one shell: {', '.join(SHELLS)}")
    write({"bash": _bash, "zsh": _zsh, "fish": _fish}[bare[0]]())
    return 0


def _verbs() -> dict[str, tuple[str, list[str]]]:
    """Return verb -> (what it does, its flags); common flags are left out."""
    from pinfold.operations import TABLE

    verbs = {verb: (words, list(_OWN_FLAGS.get(verb, ()))) for verb, (_, words) in OWN_VERBS.items()}
    for row in TABLE:
        flags = [flag for param in row.params if (flag := flag_of(param))]
        if any(param.kind == "any" or param.file for param in row.params):
            flags.append("--file")
        if any(param.kind == "any" for param in row.params):
            flags.append("--json-value")
        for verb in row.cli:
            verbs[verb] = (summary_of(row), flags)
    return verbs


def _bash() -> str:
    verbs = _verbs()
    firsts = sorted({verb.partition(" ")[0] for verb in verbs})
    groups = sorted({verb.partition(" ")[0] for verb in verbs if " " in verb})
    common = " ".join([*WITH_VALUE, *PLAIN, "--help"])
    seconds = "\n".join(
        f"        {group}) words={shlex.quote(' '.join(sorted(v.partition(' ')[2] for v in verbs if v.startswith(group + ' '))))};;" for group in groups
    )
    flags = "\n".join(f"        {shlex.quote(verb)}) words={shlex.quote(' '.join([*own, common]))};;" for verb, (_, own) in verbs.items() if own)
    return f"""\
_pinfold() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words=''
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {shlex.quote(" ".join(firsts))} -- "$cur"))
        return
    fi
    if [ "$COMP_CWORD" -eq 2 ]; then
        case "$verb" in
{seconds}
        completion) words='{" ".join(SHELLS)}';;
        esac
    fi
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in --file) COMPREPLY=($(compgen -f -- "$cur")); return;; esac
    if [ "${{cur#-}}" != "$cur" ]; then
        case "$verb" in {"|".join(groups)}) verb="$verb ${{COMP_WORDS[2]}}";; esac
        words={shlex.quote(common)}
        case "$verb" in
{flags}
        esac
    fi
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}}
complete -F _pinfold pinfold
"""


def _zsh() -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    verbs = _verbs()
    lines = ["complete -c pinfold -f"]
    for verb, (words, flags) in verbs.items():
        first, _, second = verb.partition(" ")
        about = shlex.quote(words)
        if second:
            lines.append(f"complete -c pinfold -n __fish_use_subcommand -a {first}")
            lines.append(f"complete -c pinfold -n '__fish_seen_subcommand_from {first}' -a {second} -d {about}")
        else:
            lines.append(f"complete -c pinfold -n __fish_use_subcommand -a {first} -d {about}")
        seen = f"__fish_seen_subcommand_from {second or first}"
        lines += [f"complete -c pinfold -n '{seen}' -l {flag[2:]}{' -rF' if flag == '--file' else ''}" for flag in flags]
    lines.append(f"complete -c pinfold -n '__fish_seen_subcommand_from completion' -a '{' '.join(SHELLS)}'")
    lines += [f"complete -c pinfold -l {flag[2:]} -x" for flag in WITH_VALUE]
    lines += [f"complete -c pinfold -l {flag[2:]}" for flag in (*PLAIN, "--help")]
    return "\n".join(dict.fromkeys(lines)) + "\n"
