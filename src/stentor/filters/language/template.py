"""Parsing by shape: what the grammar says about a text depends only on the kinds of its tokens.

A million filters have few shapes: `symbol = 'IBM' and price > 100` and `sector = 'oil' and
volume > 5` have the same sequence of token kinds. So the LALR parser never sees a text. It is given
the kinds, and from the parse tree a `Template` is compiled: a straight-line program whose steps
read the texts of numbered tokens and the results of earlier steps. Running the program over the
tokens of a text builds its expression. Templates are cached by kinds, so names and constants cost
no parsing; and since there is no other way from text to expression, a cached template cannot mean
anything else than a fresh one.

Whatever depends on the *text* of a token (the value of a literal, the type after `is`, the name of
a registered operator) is therefore left to the steps. The program has no nesting, so no text can
exhaust Python's stack; the depth of the expression that it builds is limited at compile time.

Conjunctions of plain comparisons, by far the most frequent filters, get a shorter program: a table
of rows (name token, operator, literal token, how to read it). If a literal cannot be read, the full
program is run instead, because it knows which token is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from lark.exceptions import VisitError

from stentor.filters.expression import And, Atom, Expression
from stentor.filters.language.compiler import Compiler, Row, Step, Tokens
from stentor.filters.language.grammar import parse_kinds
from stentor.filters.language.mistakes import TextError

#: How many templates are kept, and the longest text (in tokens) whose template is.
CACHED_TEMPLATES: Final = 1024
CACHED_TOKENS: Final = 128


class Template:
    """How to build the expression of every text with a certain sequence of token kinds."""

    __slots__ = ("_blame", "_steps", "build")

    def __init__(self, steps: list[Step], blame: list[int], rows: list[Row] | None) -> None:
        self._steps = steps
        self._blame = blame
        #: Builds the expression from the tokens.
        self.build: Callable[[Tokens], Expression] = self.run
        if rows is not None:
            self.build = _single(rows[0], self.run) if len(rows) == 1 else _all(rows, self.run)

    def run(self, tokens: Tokens) -> Expression:
        """Run the full program. A `TextError` that it raises knows its place."""
        results: list[Any] = []
        append = results.append
        try:
            for step in self._steps:
                append(step(tokens, results))
        except TextError as problem:
            if problem.index < 0:
                problem.index = self._blame[len(results)]
            raise
        expression: Expression = results[-1]
        return expression


def _single(row: Row, run: Callable[[Tokens], Expression]) -> Callable[[Tokens], Expression]:
    name, operator, literal, read = row

    def build(tokens: Tokens) -> Expression:
        try:
            return Atom(tokens[name], operator, (read(tokens[literal]),))
        except TextError:
            return run(tokens)

    return build


def _all(rows: list[Row], run: Callable[[Tokens], Expression]) -> Callable[[Tokens], Expression]:
    def build(tokens: Tokens) -> Expression:
        try:
            return And(
                tuple(
                    [
                        Atom(tokens[name], operator, (read(tokens[literal]),))
                        for name, operator, literal, read in rows
                    ]
                )
            )
        except TextError:
            return run(tokens)

    return build


def compile_template(kinds: tuple[str, ...]) -> Template:
    """Parse a sequence of token kinds. Raises a `TextError` that knows its place."""
    compiler = Compiler()
    try:
        result = compiler.transform(parse_kinds(kinds))
    except VisitError as error:
        raise error.orig_exc from None
    return Template(compiler.steps, compiler.blame, result.rows)


#: The same, from a cache of the templates used last.
cached_template = lru_cache(CACHED_TEMPLATES)(compile_template)
