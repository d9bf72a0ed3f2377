"""params.yaml: one strict, frozen model per section, and every problem of the file in one error.

A section's model lives beside the code that obeys it and has no defaults: params.yaml is the only
place that holds values. The file is read with ruamel.yaml, as DVC reads it, so that both see the
same numbers (`6e-4` is 0.0006; PyYAML reads a string).
"""

import ast
import contextlib
import copy
import functools
import inspect
import itertools
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.resolver import VersionedResolver

from tokenmill.core.errors import UserError, did_you_mean
from tokenmill.core.files import read_bytes, utf8_text

PARAMS_FILE = Path("params.yaml")

MOST_VALUES = 10_000
"""The most values that a file may have. YAML aliases (`*name`) can repeat parts of a small file
until it fills any memory."""

MOST_OPENINGS = 1_000
"""The most characters that may each begin a level in a YAML file that C reads. It has no bound of
its own, and ends the process where levels fill the stack."""

RANDOM = Path("models/random")
"""A folder that holds no model: training starts from random weights."""

LARGEST_NUMBER = 10**15
"""The largest number allowed. No machine will see more bytes, documents or steps."""

Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
"""A number of epochs; the weights of each are kept."""

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
"""A number of things, which a float holds exactly."""

Positive = Annotated[Count, Field(ge=1)]
"""A number of things of which there is at least one; also that of an epoch or a step, which count
from 1."""

LARGEST_MEASURED = 1e100
"""The largest measured number. Nothing in float32 comes near it, and of such numbers sums, products
and the ticks of an axis are finite."""

Finite = Annotated[float, Field(ge=-LARGEST_MEASURED, le=LARGEST_MEASURED, allow_inf_nan=False)]
"""A measured number, which is neither infinite nor NaN."""


DeviceName = Literal["auto", "cpu", "cuda", "mps"]
"""The values of `runtime.device`."""


def is_url(place: str) -> bool:
    """Whether a place is named by a URL, and not by a path."""
    return "://" in place


def _no_nul(value: str) -> str:
    """Refuse a character that ends a path for the system, and that Python raises errors of its own
    about."""
    if "\0" in value:
        raise ValueError(f"{value!r} has the character NUL, which no path has; leave it out.")
    return value


def _shared_place(value: str) -> str:
    """Refuse a relative path, and a URL that opens something by itself."""
    if is_url(value):
        _refuse_secrets(value)
    elif not os.path.isabs(os.path.expanduser(value)):  # noqa: PTH111, PTH117 (of no user)
        raise ValueError(
            f"{value!r} must be an absolute path or a URL, because DVC also runs stages in "
            "temporary copies."
        )
    return value


def _raw_place(value: str) -> str:
    """Refuse a URL that opens something by itself, or of what is not read where it is."""
    if is_url(value):
        _refuse_secrets(value)
        parts = urlsplit(value)
        if parts.scheme != "s3" or not parts.netloc:
            raise ValueError(
                f"{value!r} must be a path or s3://bucket/prefix; what is at another address "
                "`tokenmill fetch ADDRESS` brings here."
            )
    return value


def _refuse_secrets(url: str) -> None:
    """Refuse a URL that opens something by itself, without repeating it."""
    parts = urlsplit(url)
    if parts.password or parts.query or parts.fragment or "::" in url:
        raise ValueError(
            "it must be an address without password and query, such as s3://bucket/prefix; keep "
            "keys in the environment, or where the tools of the service look for them."
        )


PathText = Annotated[str, Field(min_length=1), AfterValidator(_no_nul)]
"""A path as a text."""

SharedPlace = Annotated[PathText, AfterValidator(_shared_place)]
"""A place that several machines share: an absolute path, or a URL that fsspec knows."""

RawPlace = Annotated[PathText, AfterValidator(_raw_place)]
"""Where raw text is: a path, or the URL of an object or of a folder of objects in S3."""

MOST_TIMES = 1000
"""The most times that an epoch may see a source."""

Weight = Annotated[float, Field(ge=0, le=MOST_TIMES, allow_inf_nan=False)]


class Section(BaseModel):
    """Base class of every section: strict types, unknown keys refused, immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """The meaning of each parameter, from the docstring below it.

        Pydantic's option `use_attribute_docstrings` would read the docstrings whenever a class is
        made, which adds a tenth of a second to every start.
        """
        found: dict[str, str] = {}
        for section in reversed(cls.__mro__[: cls.__mro__.index(Section)]):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
            assert isinstance(tree, ast.ClassDef)
            for field, below in itertools.pairwise(tree.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        found[name] = inspect.cleandoc(text)
        return found


class StartParams(Section, extra="ignore"):
    """The parameter of the section `model` on which the tokenizer also depends."""

    # Excluded from dumps: the rest of the section defines the model's shape
    start_from: PathText = Field(exclude=True)
    """`models/random`: random weights. Or a folder that `tokenmill import` wrote: training starts
    from its weights, with its tokenizer (the section `tokenizer` does not count then), and the
    sizes must be those of its model."""

    @property
    def start(self) -> Path | None:
        """The folder of the model to start from; None for random weights."""
        return None if Path(self.start_from) == RANDOM else Path(self.start_from)


class DeviceParams(Section, extra="ignore"):
    """The parameter of the section `runtime` that says where models run."""

    device: DeviceName
    """Where to train and evaluate; `auto` takes CUDA, else Apple's Metal, else the CPU."""


Mode = Literal["strict", "balanced", "lenient", "none"]


class ModeParams(Section, extra="ignore"):
    """The parameter of the section `clean` by which also texts that somebody types are written."""

    mode: Mode
    """Which characters stay: `strict` ASCII; `balanced` the letters, numbers and punctuation of
    every script, with typographic quotes, dashes and symbols as one types them; `lenient` all of
    Unicode but emoji and control characters; `none` the text as it is. The first three also
    normalize Unicode (NFC) and white space."""


def typed_mode(root: Path) -> Mode:
    """`clean.mode` of the project at `root`, by which texts are written that somebody types there;
    `none` outside a project."""

    class Params(Section):
        clean: ModeParams

    path = root / PARAMS_FILE
    return load(Params, path).clean.mode if path.exists() else "none"


class MixtureParams(Section, extra="ignore"):
    """The parameter of the section `data` that training obeys, and no stage before it."""

    mixture: dict[str, Weight] | None
    """How many times an epoch sees each source, by its name: that of a folder that lies in
    `data.raw`, or of a file there. 2: twice, cut elsewhere the second time; 0.5: half of it, and
    another half in the next epoch; 0: none of it. A source without a name here is seen once; null:
    all are. It changes what training sees, and neither the tokens nor the validation text."""

    @field_validator("mixture", mode="before")
    @classmethod
    def _names_are_text(cls, value: object) -> object:
        for name in value if isinstance(value, dict) else ():
            if not isinstance(name, str):
                raise ValueError(
                    f"data.mixture has {name!r}, which is no text; write the name of a source in "
                    "quotes."
                )
        return value


View = TypeVar("View", bound=Section)


class ParamsError(UserError):
    """Parameters are wrong; the message has a line for each of them."""

    def __init__(self, path: object, problems: Sequence[tuple[str, str]]):
        """Join `problems`, each the dotted name of a parameter or section and a sentence, which may
        begin with another file that the parameter names."""
        self.parameters = [name for name, _ in problems]
        name, sentence = problems[0]
        head = f"{path}: " if sentence.startswith(name) else ""
        if len(problems) > 1:
            head = f"{path} has {len(problems)} problems:\n  "
        super().__init__(head + "\n  ".join(sentence for _, sentence in problems))


def load(view: type[View], path: Path = PARAMS_FILE) -> View:
    """Read the sections that `view` names from `path` and ignore the others.

    Example:
        >>> class Params(Section):
        ...     clean: CleanParams
        >>> load(Params).clean.mode
        'balanced'

    Raises:
        UserError: the file cannot be read.
        ParamsError: values of these sections are wrong; lists every problem with the parameter's
            name, its value and the way out.
    """
    return parse(view, _content(path), path)


def parse(view: type[View], data: bytes, path: object) -> View:
    """The same from the content of a file, which error messages call `path`."""
    content = parse_yaml(data, path, tuple(view.model_fields))
    return validate(
        view, {name: content[name] for name in view.model_fields if name in content}, path
    )


def read_yaml(path: Path, names: Sequence[str] = ("model", "train")) -> dict[str, Any]:
    """The top-level mapping of a YAML file, as DVC reads it; see `parse_yaml`."""
    return parse_yaml(_content(path), path, names)


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing in {Path.cwd()}; run the command in the project's root."
        ) from None


def parse_yaml(
    data: bytes, path: object, names: Sequence[str] = ("model", "train")
) -> dict[str, Any]:
    """Parse the content of a YAML file, which must hold a mapping; error messages call it `path`,
    and name what it must hold, as `names`.

    Raises:
        UserError: also if it is not UTF-8, or if aliases make it longer than MOST_VALUES.
    """
    content = yaml_value(utf8_text(data, path), path)
    if not isinstance(content, dict):
        held = ", ".join(f"`{name}:`" for name in names)
        kinds = {list: "a list", type(None): "empty"}
        found = kinds.get(type(content), "a single value")
        raise UserError(f"{path} must hold {held} at the beginning of a line; it is {found}.")
    values = [content]
    for count, value in enumerate(values):
        if count > MOST_VALUES:
            raise UserError(
                f"{path} has more than {MOST_VALUES:,} values; does it repeat parts of itself "
                "(`*name`)?"
            )
        values.extend(
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        )
    return content


def dotted(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no section, with its dotted name. An empty mapping is a value.

    Example:
        >>> dict(dotted({"data": {"raw": "texts", "mixture": {}}}))
        {'data.raw': 'texts', 'data.mixture': {}}
    """
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def in_sections(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The values by dotted names that are among `names`, or are of a section among them."""
    sections = tuple(f"{name}." for name in names)
    return {name: value for name, value in values.items() if f"{name}.".startswith(sections)}


def yaml_value(text: str, name: object) -> Any:
    """What a YAML text holds; error messages call it `name`.

    Raises:
        UserError: it is not YAML, or a value in it is impossible.
    """
    try:
        return copy.deepcopy(_loaded(text))
    # ValueError: a number of 10,000 digits, or an impossible date; AssertionError: `%YAML 1.3`
    except (YAMLError, ValueError, AssertionError, RecursionError) as error:
        if mark := re.search(r"^<{7} ", text, re.MULTILINE):
            line = text.count("\n", 0, mark.start()) + 1
            raise UserError(
                f"{name} holds the marks of an unfinished merge (line {line}); keep one side "
                "(docs/sharing.md)."
            ) from None
        raise UserError(f"{name} is not valid YAML: {yaml_problem(error, text)}") from None
    except LookupError:
        raise UserError(
            f"{name} is not valid YAML: a value does not suit its tag (`!!bool`, `!!int`, "
            "`!!float`); leave the tag out."
        ) from None
    except TypeError:
        raise UserError(
            f"{name} is not valid YAML: a list with names and values in it (`[a: 1]`) stands where "
            "a name does; write a text there."
        ) from None


def yaml_problem(error: Exception, text: str) -> str:
    """What is wrong with a YAML text and in which line, without the excerpt and the advice to
    programmers that YAML errors carry."""
    parts = list[str]()
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        parts = [f"the character U+{error.character:04X} is not allowed (line {line})"]
    if isinstance(error, MarkedYAMLError):
        places = (error.context, error.context_mark), (error.problem, error.problem_mark)
        parts = [f"{what} (line {mark.line + 1})" for what, mark in places if what and mark]
    return f"{', '.join(parts)}; correct it there." if parts else " ".join(str(error).split())


class _Constructor(SafeConstructor):
    def printable_int(self, node: Any) -> int:
        """Refuse also a hexadecimal number of more digits than Python prints, as in an error."""
        value = self.construct_yaml_int(node)
        str(value)
        return value


_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.printable_int)


class _Resolver(VersionedResolver):
    @property
    def processing_version(self) -> tuple[int, int]:
        """YAML 1.2, as DVC reads it, also below a line such as `%YAML 1.1`, where `010` would be
        8."""
        return 1, 2


@functools.lru_cache(maxsize=4)
def _loaded(text: str) -> Any:
    """What a YAML text holds. A command reads params.yaml and dvc.lock several times.

    C reads it, as in DVC, in a fifth of the time. Python reads or refuses what C refuses, which is
    also some of YAML 1.2 (`{user: who?}`), and what may be too deep for C.
    """
    if sum(map(text.count, "[{-?")) <= MOST_OPENINGS:
        with contextlib.suppress(YAMLError):
            return _reader(pure=False).load(text)
    return _reader(pure=True).load(text)


def _reader(*, pure: bool) -> YAML:
    yaml = YAML(typ="safe", pure=pure)
    yaml.Constructor = _Constructor
    yaml.Resolver = _Resolver
    return yaml


def validate(view: type[View], content: dict[str, Any], path: object) -> View:
    """Check `content` against `view`; `path` is where it comes from."""
    try:
        params = view.model_validate(content)
        problems = [
            (name, f"{name} ({value}) must be at most {LARGEST_NUMBER:,}.")
            for name, value in dotted(params.model_dump())
            # Also if it is NaN
            if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER
        ]
        if not problems:
            return params
    except ValidationError as error:
        problems = [(_name(details["loc"]), _sentence(view, details)) for details in error.errors()]
    raise ParamsError(path, problems)


MUST_BE = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "names and values, as `name: value`",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "invalid_key": "a text",
    "list_type": "a list",
    "model_type": "names and values, as `name: value`",
    "string_too_short": "a text of {min_length} or more characters",
    "string_type": "a text",
    "too_long": "a list of at most {max_length} entries",
    "too_short": "a list of {min_length} or more entries",
}
"""What a value must be, by the kind of pydantic's error, where its own words speak of Python."""


def _sentence(view: type[Section], details: ErrorDetails) -> str:
    """One problem as a sentence: name, value, way out."""
    loc = details["loc"]
    kind = details["type"]
    value = details["input"]
    name = _name(loc)
    message = details["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    if kind in MUST_BE:
        message = MUST_BE[kind].format_map(details.get("ctx", {}))
    if kind == "extra_forbidden":
        section = _section(view, loc[:-1])
        known = section.model_fields if section else ()
        hint = did_you_mean(str(loc[-1]), known, before=_name((*loc[:-1], "")))
        return f"{name} ({value!r}) is not a parameter; {hint or 'remove it.'}"
    if kind == "missing":
        section = _section(view, loc[:-1])
        meaning = " ".join(section.descriptions().get(str(loc[-1]), "").split()) if section else ""
        way_out = "add it as in docs/parameters.md"
        return f"{name} is missing; {way_out}{f': {meaning}' if meaning else '.'}"
    if kind == "value_error":
        return message if not name or message.startswith(name) else f"{name}: {message}"
    return f"{name} ({value!r}) must be {message}."


def _name(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc))


def _section(view: Any, loc: tuple[int | str, ...]) -> type[Section] | None:
    """The section at `loc`; None where that is no section."""
    for part in loc:
        field = getattr(view, "model_fields", {}).get(part)
        view = field.annotation if field else None
    return view if isinstance(view, type) and issubclass(view, Section) else None
