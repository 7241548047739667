"""From text to expression: scan, find the template of the shape, fill it in; or explain."""

from __future__ import annotations

from typing import Final

from stentor.errors import FilterSyntaxError, FilterTypeError
from stentor.filters.effort import spend
from stentor.filters.expression import Expression, Or
from stentor.filters.language.grammar import UnexpectedTextError
from stentor.filters.language.mistakes import TextError, line_and_column, shown, syntax_error
from stentor.filters.language.template import (
    CACHED_TOKENS,
    Template,
    cached_template,
    compile_template,
)
from stentor.filters.language.tokens import (
    KEYWORDS,
    MISTAKES,
    ListedError,
    alternatives,
    kinds,
    offsets,
    scan,
    without_lists,
)

#: The longest text that is read, in characters.
MAX_LENGTH: Final = 1 << 20
#: What parsing takes where no template is at hand, for each token (see `stentor.filters.effort`).
STEPS_PER_TOKEN: Final = 21


def parse(text: str) -> Expression:
    """The expression that a text of the subscription language stands for.

    >>> parse("symbol = 'IBM'")
    Atom(name='symbol', operator='=', constants=('IBM',))
    >>> parse("")
    Truth(value=True)
    """
    if not isinstance(text, str):
        raise FilterTypeError(f"a filter is written as a string, not as {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(
            f"the filter has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    if not text.isascii():
        check_text(text)
    tokens = scan(text)
    shape = kinds(tokens)
    places: list[int] | None = None
    try:
        if len(shape) <= CACHED_TOKENS:
            return cached_template(shape).build(tokens)
        spend(len(shape) * 5 // 4)
        tokens, shape, places = without_lists(tokens, shape)
        return _build(tokens, shape)
    except TextError as problem:
        error = _explain(text, tokens, shape, places, problem)
    raise error


def reading_steps(text: str) -> int:
    """The steps that parsing takes, without what is built from it."""
    tokens = scan(text)
    _, shape, _ = without_lists(tokens, kinds(tokens))
    return len(tokens) * 5 // 4 + _steps(shape, alternatives(shape))


def _build(tokens: list[str], shape: tuple[str, ...]) -> Expression:
    """A long text is read alternative by alternative: most have a shape that others have too."""
    pieces = alternatives(shape)
    spend(_steps(shape, pieces))
    if len(pieces) > 1:
        try:
            parts = [_template(shape[i:j]).build(tokens[i:j]) for i, j in pieces]
            return Or(tuple(parts))
        except TextError:  # the place of the mistake is told by reading the whole
            spend(STEPS_PER_TOKEN * len(shape))
    return _template(shape).build(tokens)


def _steps(shape: tuple[str, ...], pieces: list[tuple[int, int]]) -> int:
    shapes = {shape[i:j] for i, j in pieces}
    return 3 * len(shape) + STEPS_PER_TOKEN * sum(map(len, shapes))


def _template(shape: tuple[str, ...]) -> Template:
    return (cached_template if len(shape) <= CACHED_TOKENS else compile_template)(shape)


def check_text(text: str) -> None:
    """Half a surrogate pair has no UTF-8 form, so no name and no value may hold one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = text[: error.start]
        line, column = line_and_column(place, len(place))
        raise FilterSyntaxError(
            f"line {line}, column {column}: the text holds half a surrogate pair",
            line=line,
            column=column,
        ) from None


def _explain(
    text: str,
    tokens: list[str],
    shape: tuple[str, ...],
    places: list[int] | None,
    problem: TextError,
) -> FilterSyntaxError:
    starts = offsets(text)
    # The end of the text lies behind its last token, not behind the white space that follows.
    end = starts[-1] + len(tokens[-1]) if tokens else 0
    if isinstance(problem, ListedError):
        return syntax_error(text, starts[problem.index], problem.message, problem.expected)
    if places is not None:
        starts = [starts[place] for place in places]
    starts.append(end)
    message = problem.message
    before = problem.index - 1
    if (
        isinstance(problem, UnexpectedTextError)
        and problem.accepted == {"STRING"}
        and shape[before] == "NAME"
    ):  # a word where only constants may stand was taken for the name of a value type
        word = shown(tokens[before])
        message = f"{word} is not a value; write '{word}' in single quotes if it is a string"
        return syntax_error(text, starts[before], message, ("a value",))
    if (
        isinstance(problem, UnexpectedTextError)
        and problem.accepted == {"STRING"}
        and shape[before] == "NULL"
    ):
        message = f"unexpected '{tokens[before]}': {MISTAKES['NULL']}"
        return syntax_error(text, starts[before], message, ("a value",))
    if isinstance(problem, UnexpectedTextError):
        message = _unexpected(text, tokens, shape, problem, starts)
    return syntax_error(text, starts[problem.index], message, problem.expected)


def _unexpected(
    text: str,
    tokens: list[str],
    shape: tuple[str, ...],
    problem: UnexpectedTextError,
    starts: list[int],
) -> str:
    index, accepted = problem.index, problem.accepted
    if index == len(tokens):
        message = "the filter ends too early"
        token, kind = "", "$END"
    else:
        token, kind = shown(tokens[index]), shape[index]
        quoted = token if kind in ("STRING", "QUOTED") else f"'{token}'"
        message = "unclosed quote" if kind.startswith("OPEN_") else f"unexpected {quoted}"
    hint = MISTAKES.get(kind)
    if kind == "QUOTED" and "STRING" in accepted and "QUOTED" not in accepted:
        single = "'" + shown(tokens[index][1:-1].replace("'", "''")) + "'"
        hint = f"double quotes name attributes; write {single} in single quotes"
    elif kind == "_RPAR" and shape[:index].count("_LPAR") <= shape[:index].count("_RPAR"):
        hint = "no '(' is open here"
    elif index > 1 and kind in ("IN", "_OF") and tokens[index - 2].lower() in ("any", "all"):
        word, name = tokens[index - 2 : index]
        hint = f"write {word} {name} in LIST: CONDITION, with the colon"
    elif kind == "_LPAR" and index and shape[index - 1] == "EXISTS":
        hint = "write exists and the name, without parentheses"
    elif kind == "_LPAR" and index and shape[index - 1] in ("NAME", "QUOTED"):
        hint = "filters call no functions; compare the attribute itself"
    elif token.lower() in KEYWORDS and "QUOTED" in accepted and hint is None:
        hint = f'{token} is a keyword; to name an attribute, write "{token}" in double quotes'
    elif _is_bare_attribute(index, shape, accepted):
        hint = f"an attribute alone is not a condition; write {shown(tokens[index - 1])} = true"
    elif "_RPAR" in accepted and kind == "$END":
        place = line_and_column(text, starts[_open_parenthesis(shape, index)])
        hint = f"the '(' at line {place[0]}, column {place[1]} is never closed"
    return f"{message}: {hint}" if hint else message


def _is_bare_attribute(index: int, shape: tuple[str, ...], accepted: set[str]) -> bool:
    """`active and …`: a name, where a comparison has to follow, before `and`, `or` or the end."""
    follows = shape[index] if index < len(shape) else "$END"
    return (
        follows in ("_AND", "_OR", "$END")
        and {"EQ", "PREFIX"} <= accepted
        and shape[index - 1] in ("NAME", "QUOTED")
        and (index == 1 or shape[index - 2] in ("_AND", "_OR", "NOT", "_LPAR"))
    )


def _open_parenthesis(shape: tuple[str, ...], index: int) -> int:
    """The last parenthesis before that token that is not closed."""
    closed = 0
    for i in range(index - 1, -1, -1):
        if shape[i] == "_RPAR":
            closed += 1
        elif shape[i] == "_LPAR":
            if not closed:
                return i
            closed -= 1
    return 0
