"""Pages of the command line, from the help that each command gives."""

from __future__ import annotations

from advect.cli.app import COMMANDS, GROUPS, Command, build_app


def page(command: Command) -> str:
    """What ``advect COMMAND --help`` says, with the example at its end."""
    text = build_app()[command.name].generate_docs(heading_level=1)
    lines = text.splitlines()
    lines[0] = f"# advect {command.name}"
    example = command.example.replace("\n  ", "\n")
    return "\n".join([*lines, "", "**Example**:", "", "```sh", example, "```", ""])


def index() -> str:
    """All commands, in the groups of the help."""
    parts = [
        "# Commands",
        "",
        "What `advect COMMAND --help` says, of every command. [Command line](../command-line.md) is the guide.",
        "",
    ]
    for group in GROUPS:
        chosen = [command for command in COMMANDS if command.group == group]
        if not chosen:
            continue
        parts += [f"## {group}", "", "| command | what it does |", "| --- | --- |"]
        parts += [f"| [`{c.name}`](commands/{c.name}.md) | {c.line} |" for c in chosen] + [""]
    listed = [f"commands/{command.name}" for command in COMMANDS]
    return "\n".join([*parts, "```{toctree}", ":hidden:", "", *listed, "```", ""])


def pages() -> dict[str, str]:
    """All pages about the command line, by their name in the folder of the reference."""
    made = {f"commands/{command.name}.md": page(command) for command in COMMANDS}
    return {"commands.md": index()} | made
