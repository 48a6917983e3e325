"""Writer of the files below `share/` of an installation: a man page of each command, and completion for three shells.

`python -m timestone_cli.share_files DIR` runs while a wheel is built (setup.py) and for `make man`. A man page is made
by the calls that print `--help-all`, so the two have the same text. Must not be imported by the commands.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from timestone import __version__

from .errors import CommandError
from .group import EXPLAIN_ALL, LazyGroup
from .main import COMPLETION_VARIABLE, shell_completion, timestone

COMPLETION_FILES = {
    "bash": "bash-completion/completions/timestone",
    "zsh": "zsh/site-functions/_timestone",
    "fish": "fish/vendor_completions.d/timestone.fish",
}
"""Where each shell looks for completion, below `share/`."""

_HEADING = re.compile(r"([A-Z][\w ]*):")
_EXIT_CODES = "Exit codes: "


class ManPage(click.HelpFormatter):
    """Formatter of click that writes a man page (roff with the man macros) instead of text for a terminal.

    `name` is the command as it is typed, `summary` its line in the list of commands.
    """

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(width=80)
        page = name.replace(" ", "-")
        self.write(
            f'.TH {_escaped(page.upper())} 1 "" "Timestone {__version__}" "Timestone manual"\n.nh\n.ad l\n'
        )
        self.write(f".SH NAME\n{_escaped(page)} \\- {_escaped(summary.removesuffix('.'))}\n")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage as the synopsis; what comes next is the description."""
        self.write(f".SH SYNOPSIS\n.B {_escaped(prog)}\n{_escaped(args)}\n.SH DESCRIPTION\n")

    def write_heading(self, heading: str) -> None:
        """Begin a section."""
        self.write(f".SH {_escaped(heading.upper())}\n")

    def write_paragraph(self) -> None:
        """Write nothing: each section begins with a paragraph."""

    def write_text(self, text: str) -> None:
        """Write text that is filled, paragraph by paragraph."""
        for number, paragraph in enumerate(text.split("\n\n")):
            if number:
                self.write(".PP\n")
            self.write("".join(f"{_line(line.strip())}\n" for line in paragraph.splitlines()))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of terms, such as options."""
        for term, text in rows:
            bold = re.sub(r"(?<![\w-])(--?[a-z][\w-]*)", "\0\\1\1", term.strip(), flags=re.IGNORECASE)
            marked = _line(bold).replace("\0", "\\fB").replace("\1", "\\fR")
            self.write(f".TP\n{marked}\n{_line(' '.join(text.split()))}\n")

    def write_epilog(self, epilog: str) -> None:
        """Write what follows the options: indented lines as they are, and paragraphs that are filled."""
        under = ""
        for lines in _blocks(epilog.splitlines()):
            is_literal = lines[0].startswith(" ")
            if title := _HEADING.fullmatch(lines[0]):
                under = title[1]
                self.write_heading(under)
            elif is_literal:
                # At the left margin: the lines take up to 80 columns.
                self.write(".in 0\n.nf\n" + "".join(f"{_line(line)}\n" for line in lines) + ".fi\n.in\n")
            elif lines[0].startswith(_EXIT_CODES):
                under = "Exit status"
                self.write_heading(under)
                self.write_text("\n".join(lines).removeprefix(_EXIT_CODES))
            else:
                if under == "Notes":
                    self.write(".PP\n")
                else:
                    under = "Notes"
                    self.write_heading(under)
                self.write_text("\n".join(lines))


def man_pages() -> Iterator[tuple[str, str]]:
    """Yield file name and text of each man page: of `timestone`, of its commands, and of theirs.

    A command whose packages are not installed has no page.
    """
    with click.Context(timestone, info_name="timestone") as ctx:
        yield from _pages(ctx, (timestone.help or "").strip())


def completion(shell: str) -> str:
    """Return the script with which a shell completes `timestone`; shell: a key of COMPLETION_FILES."""
    module = shell_completion()
    made_by = module.get_completion_class(shell)
    # Not `source` of the class for bash, which first looks for the version of the bash that is installed here.
    script: str = module.ShellComplete.source(made_by(timestone, {}, "timestone", COMPLETION_VARIABLE))
    if shell != "zsh":
        return script
    # zsh calls the whole file as a function. The end of click's script completes only at the first call of it.
    functions, condition, _ = script.partition("if [[ $zsh_eval_context[-1] == loadautofunc ]]")
    assert condition
    return functions + '_timestone_completion "$@"\n'


def write_share_files(directory: Path) -> None:
    """Write all files below `directory`, which stands for `share/`."""
    files = {f"man/man1/{name}": text for name, text in man_pages()}
    files |= {path: completion(shell) for shell, path in COMPLETION_FILES.items()}
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)


def _pages(ctx: click.Context, summary: str) -> Iterator[tuple[str, str]]:
    command, name = ctx.command, ctx.command_path
    ctx.meta[EXPLAIN_ALL] = True
    page = ManPage(name, summary)
    command.format_usage(ctx, page)
    command.format_help_text(ctx, page)
    command.format_arguments(ctx, page)
    command.format_options(ctx, page)
    page.write_epilog(command.epilog or "")
    inner = list(_commands_of(ctx))
    others = [ctx.parent.command_path] if ctx.parent else []
    others += [f"{name} {each}" for each, _, _ in inner]
    page.write_heading("See also")
    page.write(" ,\n".join(f".BR {_escaped(each.replace(' ', '-'))} (1)" for each in others) + "\n")
    yield f"{name.replace(' ', '-')}.1", page.getvalue()
    for each, found, line in inner:
        with click.Context(found, info_name=each, parent=ctx, **found.context_settings) as below:
            yield from _pages(below, line)


def _commands_of(ctx: click.Context) -> Iterator[tuple[str, click.Command, str]]:
    """Yield name, command and line of the commands below one, as far as their packages are installed."""
    if not isinstance(ctx.command, click.Group):
        return
    table = ctx.command.entries if isinstance(ctx.command, LazyGroup) else {}
    for name in ctx.command.list_commands(ctx):
        try:
            found = ctx.command.get_command(ctx, name)
        except CommandError:
            continue
        assert found is not None, name
        yield name, found, table[name].summary if name in table else found.get_short_help_str(100)


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield lines that belong together: headings, lines that are indented, paragraphs."""
    block: list[str] = []
    for line in [*lines, ""]:
        is_new = (
            not line or _HEADING.fullmatch(line) or (block and line[:1].isspace() != block[-1][:1].isspace())
        )
        if block and is_new:
            yield block
            block = []
        if line:
            block.append(line)


def _line(text: str) -> str:
    """Return a line of text that roff does not take for a request."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escaped(text: str) -> str:
    """Return text with the characters escaped that roff would change."""
    text = text.replace("\\", "\\e")
    for plain, roff in {
        "-": "\\-",
        "'": "\\(aq",
        "`": "\\(ga",
        "^": "\\(ha",
        "~": "\\(ti",
        '"': "\\(dq",
    }.items():
        text = text.replace(plain, roff)
    return "".join(char if char < "\x7f" else f"\\[u{ord(char):04X}]" for char in text)


if __name__ == "__main__":
    write_share_files(Path(sys.argv[1]))
