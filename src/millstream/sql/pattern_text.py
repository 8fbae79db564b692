"""AST nodes of row patterns → text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.generator import Generator

from millstream.sql import patterns

_SHORT_QUANTIFIERS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _choice(self: Generator, node: patterns.PatternChoice) -> str:
    return " | ".join(_grouped(self, part, patterns.PatternChoice) for part in node.expressions)


def _sequence(self: Generator, node: patterns.PatternSequence) -> str:
    inside = (patterns.PatternChoice, patterns.PatternSequence)
    return " ".join(_grouped(self, part, *inside) for part in node.expressions) or "()"


def _quantifier(self: Generator, node: patterns.PatternQuantifier) -> str:
    inside = (patterns.PatternChoice, patterns.PatternSequence, patterns.PatternQuantifier)
    most = "" if node.most is None else node.most
    exact = f"{{{node.least}}}" if node.least == node.most else f"{{{node.least},{most}}}"
    sign = _SHORT_QUANTIFIERS.get((node.least, node.most), exact)
    return f"{_grouped(self, node.this, *inside)}{sign}{'?' if node.reluctant else ''}"


def _grouped(self: Generator, part: exp.Expr, *kinds: type[exp.Expr]) -> str:
    """A part of a pattern, in parentheses if it is one of these; `()` has its own."""
    text = self.sql(part)
    return f"({text})" if isinstance(part, kinds) and part.args.get("expressions") != [] else text


def _after(self: Generator, node: patterns.AfterMatch) -> str:
    target = f"TO {node.to} {self.sql(node, 'this')}".rstrip()
    return f"AFTER MATCH SKIP {node.to if node.to == 'PAST LAST ROW' else target}"


def _rows(self: Generator, node: patterns.RowsPerMatch) -> str:
    if not node.all:
        return "ONE ROW PER MATCH"
    more = " WITH UNMATCHED ROWS" if node.unmatched else " OMIT EMPTY MATCHES" if node.omit else ""
    return f"ALL ROWS PER MATCH{more}"


def _within(self: Generator, node: patterns.Within) -> str:
    return f"WITHIN {self.sql(node, 'this')}{' WITH TIMEOUTS' if node.timeouts else ''}"


def _listed(self: Generator, word: str, nodes: list[Any]) -> str:
    return f"{word} {', '.join(map(self.sql, nodes))}" if nodes else ""


def _pattern_clauses(self: Generator, node: patterns.Matching) -> list[str]:
    return [
        f"PATTERN ({self.sql(node.pattern)})",
        self.sql(node, "within"),
        _listed(self, "SUBSET", node.subsets),
        _listed(self, "DEFINE", node.definitions),
    ]


def _match_recognize(self: Generator, node: patterns.MatchRecognize) -> str:
    clauses = [
        _listed(self, "PARTITION BY", node.partition),
        _listed(self, "ORDER BY", node.order.expressions if node.order else []),
        _listed(self, "MEASURES", node.measures),
        self.sql(node, "rows"),
        self.sql(node, "skip"),
        *_pattern_clauses(self, node),
    ]
    alias = f" AS {self.sql(node, 'alias')}" if node.args.get("alias") else ""
    return f"{self.sql(node, 'this')} MATCH_RECOGNIZE ({' '.join(filter(None, clauses))}){alias}{_joins(self, node)}"


def _sequence_match(self: Generator, node: patterns.SequenceMatch) -> str:
    parts = [
        self.sql(node, "this"),
        _listed(self, "PARTITION BY", node.partition),
        _listed(self, "SEQUENCE BY", node.sequence),
        f"AS ({', '.join(map(self.sql, node.variables))})",
    ]
    return " ".join(filter(None, parts)) + _joins(self, node)


def _joins(self: Generator, node: exp.Expr) -> str:
    return self.expressions(node, key="joins", sep="", flat=True)


def print_window_match(self: Generator, window: exp.Window, match: patterns.WindowMatch) -> str:
    """A window with a pattern, behind OVER or in a WINDOW clause."""
    order = window.args.get("order")
    clauses = [
        self.sql(window, "alias"),
        _listed(self, "PARTITION BY", window.args.get("partition_by") or []),
        _listed(self, "ORDER BY", order.expressions if order else []),
        _listed(self, "MEASURES", match.measures),
        self.sql(window, "spec"),
        self.sql(match, "skip"),
        "SEEK" if match.seek else "",
        *_pattern_clauses(self, match),
    ]
    word = "OVER" if window.args.get("over") else "AS"
    return f"{self.sql(window, 'this')} {word} ({' '.join(filter(None, clauses))})"


PATTERN_PRINTERS: dict[type[exp.Expr], Callable[..., str]] = {
    patterns.AfterMatch: _after,
    patterns.Final: lambda self, node: f"FINAL {self.sql(node, 'this')}",
    patterns.MatchRecognize: _match_recognize,
    patterns.PatternChoice: _choice,
    patterns.PatternDefinition: lambda self, node: f"{self.sql(node, 'this')} AS {self.sql(node, 'expression')}",
    patterns.PatternEdge: lambda self, node: "$" if node.end else "^",
    patterns.PatternExclusion: lambda self, node: f"{{- {self.sql(node, 'this')} -}}",
    patterns.PatternPermutation: lambda self, node: f"PERMUTE({', '.join(map(self.sql, node.expressions))})",
    patterns.PatternQuantifier: _quantifier,
    patterns.PatternSequence: _sequence,
    patterns.PatternSubset: lambda self, node: (
        f"{self.sql(node, 'this')} = ({', '.join(map(self.sql, node.expressions))})"
    ),
    patterns.PatternVariable: lambda self, node: self.sql(node, "this"),
    patterns.RowsPerMatch: _rows,
    patterns.RunningExtent: lambda self, node: f"RUNNING {self.sql(node, 'this')}",
    patterns.SequenceMatch: _sequence_match,
    patterns.SequenceVariable: lambda self, node: f"{'*' if node.star else ''}{self.sql(node, 'this')}",
    patterns.Starred: lambda self, node: f"*{self.sql(node, 'this')}",
    patterns.Within: _within,
}
