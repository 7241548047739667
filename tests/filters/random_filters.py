"""Filters made from a random number generator: of every kind, and easy to write in another order.

An expression is a text (one condition), or an operator and its parts. The alphabet is small, so
that conditions meet: what is generated overlaps, contradicts and covers itself.
"""

from __future__ import annotations

import random

Tree = str | tuple[str, list["Tree"]]

_REGEXES = ("^a*b", "(a|b){2}$", "^[ab]+$", "a.b", "^(ab|ba)*$", "^a{3,5}", "(a|b)*a(a|b){3}$")
#: Around these numbers of values, automata for lists come to an end.
_LENGTHS = (2, 5, 62, 63, 64, 70)


def condition(rng: random.Random, name: str) -> str:
    """One condition on the attribute."""
    word = "".join(rng.choice("ab") for _ in range(rng.randint(1, 3)))
    other = "".join(rng.choice("ab") for _ in range(rng.randint(1, 3)))
    some = rng.choice(("", "", "some "))
    negation = "not " if rng.random() < 0.2 else ""
    numbers = ", ".join(str(rng.randint(0, 4)) for _ in range(rng.randint(1, 4)))
    values = ", ".join(f"'{word}{i}'" for i in range(rng.choice(_LENGTHS)))
    comparison = rng.choice(("=", "!=", "<", ">="))
    affix = rng.choice(("prefix", "suffix", "contains"))
    members = rng.choice(("overlaps", "disjoint from", "superset of", "subset of"))
    return rng.choice(
        (
            f"{some}{name} {comparison} {rng.randint(0, 3)}",
            f"{some}{name} {negation}in ({values})",
            f"{some}{name} {negation}{affix} '{word}'",
            f"{some}{name} {negation}like '{word}%{other}_'",
            f"{some}{name} {negation}regex '{rng.choice(_REGEXES)}'",
            f"{some}{name} {negation}between {rng.randint(0, 2)} and {rng.randint(2, 5)}",
            f"{some}{name} is {rng.choice(('', 'not '))}{rng.choice(('string', 'int', 'number'))}",
            f"{name} {rng.choice(('has', 'lacks'))} '{word}'",
            f"{name} {negation}{members} ({numbers})",
            rng.choice((f"exists {name}", f"{name} is missing")),
            f"{name} < {rng.choice('xyz')}2",
        )
    )


def tree(rng: random.Random, depth: int, names: str = "xyz") -> Tree:
    """An expression of at most that depth."""
    if not depth or rng.random() < 0.15:
        return condition(rng, rng.choice(names))
    if rng.random() < 0.2:
        return "not", [tree(rng, depth - 1, names)]
    parts = [tree(rng, depth - 1, names) for _ in range(rng.randint(2, 4))]
    return rng.choice(("and", "or")), parts


def text(made: Tree, shuffled: random.Random | None = None) -> str:
    """The expression in words, its parts in another order if a generator is given for that."""
    if isinstance(made, str):
        return made
    operator, parts = made
    if operator == "not":
        return f"not ({text(parts[0], shuffled)})"
    if shuffled is not None:
        parts = shuffled.sample(parts, len(parts))
    return f" {operator} ".join([f"({text(part, shuffled)})" for part in parts])
