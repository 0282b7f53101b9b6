"""Pages of the command line, from the help that each command gives."""

from __future__ import annotations

from advect.cli.app import COMMANDS, GROUPS, Command, build_app


def page(command: Command) -> str:
    """The output of ``advect COMMAND --help``, with the example at the end."""
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
        "The output of `advect COMMAND --help` for every command. See [Command line](../command-line.md) for a guide.",
        "",
    ]
    for group in GROUPS:
        chosen = [command for command in COMMANDS if command.group == group]
        if not chosen:
            continue
        parts += [f"## {group}", "", "| command | description |", "| --- | --- |"]
        parts += [f"| [`{c.name}`](commands/{c.name}.md) | {c.line} |" for c in chosen] + [""]
    listed = [f"commands/{command.name}" for command in COMMANDS]
    return "\n".join([*parts, "```{toctree}", ":hidden:", "", *listed, "```", ""])


def pages() -> dict[str, str]:
    """All pages about the command line, by their name in the folder of the reference."""
    made = {f"commands/{command.name}.md": page(command) for command in COMMANDS}
    return {"commands.md": index()} | made
