"""`tokenmill preset`: known sets of values for params.yaml, in `presets/*.yaml`.

A preset is put over the values of `default`, so no value of another preset remains. All else in
params.yaml remains, because its text is changed only where it has another value, in the format of
`dvc exp run -S`.
"""

import argparse
import contextlib
import difflib
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tokenmill.cli.main import Parser
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes, write_text
from tokenmill.core.paths import SAMPLE
from tokenmill.display import console, print_columns, say
from tokenmill.words.units import duration, message

if TYPE_CHECKING:
    from tokenmill.schema import AllParams

FOLDER = Path(__file__).parent.parent / "presets"

DEFAULT = "default"

PRESETS = (DEFAULT, "phase1", "phase2", "phase3", "modern-124m", "gpt2-medium")
"""The names of the files in FOLDER, by the size of the model."""

GPU = "A100"

NEXT = "`tokenmill plan {}` says what this takes, `dvc repro` does it"
"""A line after other values of params.yaml, of which the tokens are not made yet."""

COLOURS = {"+": "green", "-": "red", "@": "dim"}

SIGN_OR_COMMENT = re.compile(r"#[^\r\n]*|[^\s#]+")
"""What stands between the scalars of a YAML text, except blanks."""

EXAMPLES = """\
  tokenmill preset                    the presets, and what they would take
  tokenmill preset phase1             show what would change in params.yaml, then ask
  tokenmill preset phase3 --yes       write without asking
  tokenmill preset default --yes      back to what this repository came with
  tokenmill plan --preset phase3      what it would take, without writing anything

A preset sets all of `tokenizer`, `tokenize`, `model` and `train`. The other sections stay as they
are: what to read and to keep of it, how to ask, fine-tuning, how to run.
"""


@dataclass(frozen=True)
class Preset:
    """A known configuration."""

    name: str
    about: str
    text: str
    """The text that the preset is made for, in words."""
    tokens: int
    """The number of training tokens that the preset is made for."""
    vocab_size: int
    """The number of entries that the tokenizer would get."""
    values: dict[str, Any]
    """The values for params.yaml, by their dotted names."""


def read_preset(name: str) -> Preset:
    """The preset `name`, with the values of `default` that it does not change."""
    from tokenmill.core.params import dotted, read_yaml

    content = read_yaml(FOLDER / f"{name}.yaml")
    below = {} if name == DEFAULT else read_preset(DEFAULT).values
    values = below | dict(dotted(content.pop("params")))
    return Preset(name=name, values=values, **content)


def add_arguments(parser: Parser) -> None:
    """Declare the preset, and whether to ask."""
    parser.add_argument(
        "name", nargs="?", choices=PRESETS, metavar="PRESET", help=f"one of {', '.join(PRESETS)}"
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")


def run(options: argparse.Namespace) -> None:
    """List the presets, or offer to put one into params.yaml."""
    if options.name is None:
        _print_presets()
    else:
        preset = read_preset(options.name)
        console().print(f"made for {preset.text}; set data.raw to where your copy is")
        if offer(preset.values, preset.name, yes=options.yes):
            say(NEXT.format(f"--preset {preset.name}"))


def _print_presets() -> None:
    from tokenmill.core.params import PARAMS_FILE
    from tokenmill.planning.plan import UTILISATION, plan_training

    rows = [("preset", "parameters", "tokens x epochs", f"on an {GPU}", "about")]
    for name in PRESETS:
        preset = read_preset(name)
        params = params_with(preset.values, PARAMS_FILE)
        plan = plan_training(
            Path(), params, tokens=preset.tokens, vocab_size=preset.vocab_size, hardware=[GPU]
        )
        tokens = f"{preset.tokens:.3g} x {plan.work.train.epochs}".replace("e+0", "e")
        hours = duration(next(row for row in plan.rows if row.name == GPU).total_seconds)
        rows.append((name, f"{plan.parameters:,}", tokens, hours, preset.about))
    print_columns(rows, right=(1, 2, 3))
    note = f"hours at {UTILISATION:.0%} of the peak, which small models do not reach"
    console().print(f"{note}; `tokenmill plan --preset NAME` has more")


def offer(values: Mapping[str, Any], name: str, *, yes: bool) -> bool:
    """Print how other values change params.yaml. Write the file if `yes` is true or the user
    agrees. Return whether the file has the values now.

    Raises:
        UserError: params.yaml cannot be read, or something in it stays wrong with these values.
    """
    from tokenmill.core.params import PARAMS_FILE

    params_with(values, PARAMS_FILE)
    before = read_bytes(PARAMS_FILE).decode("utf-8")
    after = text_with(values, PARAMS_FILE)
    if after == before:
        say(f"{PARAMS_FILE} has the values of {name} already")
        return True
    titles = str(PARAMS_FILE), f"{PARAMS_FILE} ({name})"
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), *titles, lineterm="", n=1
    ):
        console().print(Text(line, COLOURS.get(line[0], "")), soft_wrap=True)
    if not (yes or _confirmed(PARAMS_FILE)):
        return False
    write_text(PARAMS_FILE.resolve(), after)  # it may be a link, which stays one
    say(f"{PARAMS_FILE} is written")
    return True


def _confirmed(path: Path) -> bool:
    """Ask the user. Without a terminal, say how to agree."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(f"{path} is as it was; --yes writes it")
        return False
    try:
        answer = input(f"write {message(str(path))}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    say(f"{path} is as it was")
    return False


def params_with(
    values: Mapping[str, Any], path: Path, overrides: Sequence[str] = ()
) -> "AllParams":
    """The parameters in a file with other values by their dotted names, and then with each
    `NAME=VALUE` of `overrides`. Nothing is written."""
    from tokenmill.core.params import read_yaml, validate
    from tokenmill.schema import AllParams

    content = read_yaml(path)
    for name, value in values.items():
        section, key = _known(content, name, path)
        section[key] = value
    for text in overrides:
        apply_override(content, text)
    return validate(AllParams, content, path)


def text_with(values: Mapping[str, Any], path: Path) -> str:
    """The text of a params.yaml with other values by their dotted names. All else in it stays as it
    is: comments, order, blanks and line ends.

    Raises:
        UserError: the file cannot be read, lacks one of the names, or repeats a part of itself that
            has one of them.
    """
    from ruamel.yaml import YAMLError

    from tokenmill.core.params import parse_yaml, read_yaml, yaml_problem

    wanted = read_yaml(path)
    text = read_bytes(path).decode("utf-8")
    try:
        places = _places(text)
    except YAMLError as error:  # of what C reads and Python does not, as a tab outside of quotes
        problem = yaml_problem(error, text)
        raise UserError(f"{path} cannot get these values: {problem}") from None
    edits: list[tuple[_Place, str]] = []
    for name, value in values.items():
        section, key = _known(wanted, name, path)
        if section[key] != value:
            section[key] = value
            if name in places:
                edits.append((places[name], _written(value)))
    for place, value in sorted(edits, key=lambda edit: -edit[0].after):
        text = place.replaced(text, value)
    with contextlib.suppress(UserError):
        if parse_yaml(text.encode(), path) == wanted:
            return text
    raise UserError(
        f"{path} cannot get these values, because it repeats parts of itself (`&name`, `*name`, "
        "`<<`); write them out."
    )


@dataclass(frozen=True)
class _Place:
    """Where a value stands in a YAML text."""

    after: int
    """The end of its name."""
    parts: list[tuple[int, int]]
    """Its beginning, the names and scalars in it, and its end."""
    is_in_braces: bool

    def replaced(self, text: str, value: str) -> str:
        """The text with another value right behind the name. Of the old one only comments stay."""
        colon = text.find(":", self.after) + 1
        if value:
            value = f" {value}"
        elif self.is_in_braces:
            value = " null"
        begin = end = self.parts[0][0]
        kept = ""  # with a NUL, which YAML cannot have, for what goes
        for first, last in self.parts:
            kept += SIGN_OR_COMMENT.sub(_only_comment, text[end:first])
            kept += "\0" * (last > first)
            end = last
        text = text[:colon] + value + text[colon:begin] + kept + text[end:]
        text = re.sub(r"(?m)^[ \t]*\0[\0 \t]*(\r?\n|\Z)", "", text)
        text = re.sub(r"(?m)^([ \t]*)\0[\0 \t]*", r"\1", text)
        return re.sub(r"[ \t]*\0(?:[ \t]*\0)*", "", text)


def _only_comment(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("#") else "\0"


def _places(text: str) -> dict[str, _Place]:
    """The places of all values in a YAML text, by their dotted names."""
    from ruamel.yaml import YAML, events

    found: dict[str, _Place] = {}
    stream: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)

    def parts_of(value: Any, name: str) -> list[tuple[int, int]]:
        begin = value.start_mark.index
        if not isinstance(value, events.CollectionStartEvent):
            return [(begin, begin + len(text[begin : value.end_mark.index].rstrip()))]
        parts = [(begin, begin)]
        while not isinstance(each := next(stream), events.CollectionEndEvent):
            parts += parts_of(each, "")
            if isinstance(value, events.MappingStartEvent):
                inner = f"{name}{getattr(each, 'value', None)}"
                its = parts_of(next(stream), f"{inner}.")
                found[inner] = _Place(each.end_mark.index, its, bool(value.flow_style))
                parts += its
        end = each.end_mark.index
        return [*parts, (end, end)] if value.flow_style else parts

    for event in stream:
        if isinstance(event, events.CollectionStartEvent):
            parts_of(event, "")
    return found


def _written(value: Any) -> str:
    """A value as `dvc exp run -S` writes it; nothing for null."""
    from ruamel.yaml import YAML

    writer = YAML()
    writer.width = sys.maxsize
    stream = io.StringIO()
    writer.dump({"": value}, stream)
    return stream.getvalue().partition(":")[2].strip()


def _known(content: Any, name: str, path: Path) -> tuple[dict[str, Any], str]:
    """The section that holds a parameter of the file, and the parameter's name in it."""
    section, key = _innermost(content, name)
    if section is None or key not in section:
        raise UserError(f"{path} has no {name}; add it (`tokenmill params` says what it means).")
    return section, key


def apply_override(content: dict[str, Any], text: str) -> None:
    """Put an override such as `model.n_layer=12`, as in `dvc exp run -S`, into the content of
    params.yaml."""
    from tokenmill.core.params import yaml_value

    name, equals, value = text.partition("=")
    section, key = _innermost(content, name)
    if not equals or section is None:
        raise UserError(
            f"-S {text} is not NAME=VALUE with the name of a parameter, as in -S model.n_layer=12."
        )
    section[key] = yaml_value(value, f"the value of -S {text}")


def _innermost(content: Any, name: str) -> tuple[dict[str, Any] | None, str]:
    """The section that holds a parameter, or None if there is none, and the parameter's name in
    it."""
    *parents, key = name.split(".")
    for parent in parents:
        content = content.get(parent) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else None, key


def is_own_text_at_defaults(content: Mapping[str, Any]) -> bool:
    """Whether params.yaml combines the values made for the built-in text with another text."""
    from tokenmill.core.params import dotted

    here = dict(dotted(content))
    as_default = all(here.get(name) == value for name, value in read_preset(DEFAULT).values.items())
    return as_default and here["data.raw"] != SAMPLE.as_posix()
