"""Queries built operator by operator instead of as SQL text. They are optimised like any other.

A `Flow` is what has been built so far: entries of a FROM clause, and the conditions on their rows. Every method gives a
new flow; `start` runs it. Expressions are SQL text, and mean what they mean in a query.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp
from sqlglot.tokens import Tokenizer

from millstream import sql
from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.bind.queries.select import bind_named, bind_query
from millstream.bind.queries.set_operations import combined
from millstream.bind.statements import delivered
from millstream.errors import BindError, UnsupportedError
from millstream.plan.nodes import Kind, Node
from millstream.records import dataclass
from millstream.session.query import Query
from millstream.sql.relations import Windowed

if TYPE_CHECKING:
    from millstream.session.database import Database

How = Literal["inner", "left", "right", "full", "semi", "anti", "asof", "asof left"]
_JOINS: dict[str, str] = {"inner": "JOIN"} | {
    how: f"{how.upper()} JOIN" for how in ("left", "right", "full", "semi", "anti", "asof", "asof left")
}
_PLAIN = frozenset({"expressions", "from_"})


@dataclass(frozen=True)
class _Entry:
    """An entry of FROM: a plan, the name of its rows, and how they are joined to those of the entries before."""

    plan: Node
    alias: str
    joined: str = ""
    on: str = ""

    @property
    def text(self) -> str:
        return f"{self.joined} {_quoted(self.alias)}{self.on}".strip()


@dataclass(frozen=True)
class Flow:
    """A query that is being built. Made by `Database.stream`."""

    database: Database
    _entries: tuple[_Entry, ...]
    _conditions: tuple[str, ...] = ()
    _uses: frozenset[str] = frozenset()

    def alias(self, name: str) -> Flow:
        """The same under another name; to join two flows of one stream, they need different names."""
        flow = self._alone()
        return replace(flow, _entries=(replace(flow._entries[0], alias=name),))

    def window(self, text: str) -> Flow:
        """A relation: WINDOW of that text, for example 'RANGE 10 MINUTES' or 'PARTITION BY k ROWS 1'."""
        return self._alone()._over(f"WINDOW({text})", "window", "granularity")

    def granularity(self, text: str) -> Flow:
        """The relation with a coarser granularity, for example '1 MINUTE'."""
        return self._alone()._over(f"GRANULARITY({text})", "granularity", "window")

    def where(self, condition: str) -> Flow:
        """The rows for which the condition is true."""
        return replace(self, _conditions=(*self._conditions, f"({condition})"))._checked()

    def join(self, other: Flow, on: str | None = None, how: How = "inner") -> Flow:
        """Join with another flow, as JOIN in FROM; after it, write columns as alias.column."""
        if how not in _JOINS:
            raise BindError(f"no join {how}", hint=f"available: {', '.join(_JOINS)}")
        self._check_other(other)
        flow = self._alone() if len(self._entries) == 1 or how in ("right", "full") else self
        entry = other._alone()._entries[0]
        word = "CROSS JOIN" if on is None and how == "inner" else _JOINS[how]
        entry = replace(entry, joined=word, on="" if word == "CROSS JOIN" else f" ON {'TRUE' if on is None else on}")
        return replace(flow, _entries=(*flow._entries, entry), _uses=flow._uses | other._uses)._checked()

    def select(self, *columns: str) -> Flow:
        """New columns: expressions, with AS where they need a name."""
        return self._made(", ".join(columns) or "*")

    def group_by(self, keys: str, *columns: str, having: str | None = None) -> Flow:
        """One row for each group, with these columns of keys and aggregates; '' groups all rows."""
        rest = (f" GROUP BY {keys}" if keys else "") + (f" HAVING {having}" if having else "")
        return self._made(", ".join(columns) or keys, rest, "group" if keys else "", "having" if having else "")

    def distinct(self) -> Flow:
        """Remove duplicates at each instant."""
        return self._made("DISTINCT *", "", "distinct")

    def union(self, other: Flow, *, all: bool = True) -> Flow:
        """UNION ALL, or UNION if not `all`."""
        return self._combined(other, "UNION", all)

    def except_(self, other: Flow, *, all: bool = True) -> Flow:
        """EXCEPT ALL, or EXCEPT if not `all`."""
        return self._combined(other, "EXCEPT", all)

    def intersect(self, other: Flow, *, all: bool = True) -> Flow:
        """INTERSECT ALL, or INTERSECT if not `all`."""
        return self._combined(other, "INTERSECT", all)

    def istream(self) -> Flow:
        """An event for each row when it becomes valid (ISTREAM)."""
        return self._made("ISTREAM(*)", "", "stream_of")

    def dstream(self) -> Flow:
        """An event for each row when it stops being valid (DSTREAM)."""
        return self._made("DSTREAM(*)", "", "stream_of")

    def rstream(self) -> Flow:
        """An event for each row at every instant at which it is valid (RSTREAM)."""
        return self._made("RSTREAM(*)", "", "stream_of")

    def explain(self, mode: str = "") -> str:
        """How it would run; modes are those of EXPLAIN."""
        return self.database.explain_bound(self._bound(), mode)

    def start(self, name: str | None = None) -> Query:
        """Run it as a continuous query. It has no SQL text, so a session in a directory does not keep it."""
        bound = self._bound()
        return self.database.start_bound(bound, self._uses, str(bound.plan), name)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _text(self, columns: str, rest: str = "") -> str:
        where = f" WHERE {' AND '.join(self._conditions)}" if self._conditions else ""
        return f"SELECT {columns} FROM {' '.join(entry.text for entry in self._entries)}{where}{rest}"

    @property
    def _is_alone(self) -> bool:
        return len(self._entries) == 1 and not self._conditions

    def _check_other(self, other: Flow) -> None:
        if not isinstance(other, Flow):
            raise BindError(f"a flow is expected here, not {other!r}", hint='start one with db.stream("name")')
        if other.database is not self.database:
            raise BindError(
                "the flows belong to different sessions", hint="start both with stream(…) of the same session"
            )

    def _alone(self) -> Flow:
        """The same with one entry and no conditions."""
        return self if self._is_alone else self._made("*")

    def _made(self, columns: str, rest: str = "", *clauses: str) -> Flow:
        """The flow whose rows are those of a SELECT over this one, which has these clauses."""
        node, context = self._parsed(self._text(columns, rest), *clauses)
        bound = bind_named(node, context, node)
        return Flow(self.database, (_Entry(bound.plan, self._entries[0].alias),), (), self._uses | context.uses)

    def _over(self, words: str, wanted: str, unwanted: str) -> Flow:
        """This flow, which is alone, with a window or the like behind its name."""
        text = f"{self._text('*')} {words}"
        select = _one_select(text)
        item = select.args["from_"].this
        if not isinstance(item, Windowed) or item.args.get(unwanted) or _parts(select) != _PLAIN:
            raise BindError(f"more than one {wanted} in {words}")
        context = self._named(select, text)
        return replace(self, _entries=(replace(self._entries[0], plan=bind_query(select, context).plan.inputs[0]),))

    def _checked(self) -> Flow:
        """This flow, in which all names are known and all types fit."""
        node, context = self._parsed(self._text("*"))
        bind_query(node, context)
        return replace(self, _uses=self._uses | context.uses)

    def _bound(self) -> Bound:
        node, context = self._parsed(self._text("*"))
        plan = self._entries[0].plan
        bound = Bound(plan, plan.schema.names) if self._is_alone else bind_query(node, context)
        if bound.plan.kind is Kind.TABLE:
            raise UnsupportedError("a query over stored tables alone is not a stream", hint="query them with db.sql(…)")
        return delivered(bound, context)

    def _combined(self, other: Flow, word: str, all_: bool) -> Flow:
        self._check_other(other)
        left, right = self._alone(), other._alone()
        text = f"{left._text('*')} {word}{' ALL' if all_ else ''} {right._text('*')}"
        node = sql.parse(text)[0].ast
        assert isinstance(node, exp.SetOperation)
        plans = [flow._entries[0].plan for flow in (left, right)]
        context = Context(self.database.catalog, text)
        bound = combined(node, [Bound(plan, plan.schema.names) for plan in plans], context)
        return Flow(self.database, (_Entry(bound.plan, left._entries[0].alias),), (), left._uses | right._uses)

    def _parsed(self, text: str, *clauses: str) -> tuple[exp.Select, Context]:
        """A SELECT over this flow, which has these clauses and nothing else."""
        select = _one_select(text)
        expected = _PLAIN.union(filter(None, clauses), ("joins",) * (len(self._entries) > 1))
        if _parts(select) != expected.union(("where",) * bool(self._conditions)):
            raise _too_much(text)
        return select, self._named(select, text)

    def _named(self, select: exp.Select, text: str) -> Context:
        """The context in which the entries of a SELECT mean those of this flow."""
        items = [select.args["from_"], *(select.args.get("joins") or [])]
        if len(items) != len(self._entries):
            raise _too_much(text)
        local: dict[str, Node] = {}
        for place, (item, entry) in enumerate(zip(items, self._entries, strict=True)):
            table = item.this.this if isinstance(item.this, Windowed) else item.this
            if not isinstance(table, exp.Table):
                raise _too_much(text)
            # a name that no query inside an expression can mean
            name = exp.to_identifier(f"${place}", quoted=True)
            name.meta.update(table.this.meta)
            table.set("this", name)
            table.set("alias", exp.TableAlias(this=exp.to_identifier(entry.alias, quoted=True)))
            local[f"${place}"] = entry.plan
        return Context(self.database.catalog, text, local)


def flow_of(database: Database, name: str, alias: str | None) -> Flow:
    """What a name of the catalog, or any other entry of FROM, stands for, as the beginning of a flow."""
    known = database.catalog.find(name) is not None
    text = f"SELECT * FROM {_quoted(name) if known else name}"
    select = _one_select(text)
    context = Context(database.catalog, text)
    if _parts(select) != _PLAIN:
        raise BindError("a flow starts with one entry of FROM", detail=text, hint="join it to others with join(…)")
    plan = bind_query(select, context).plan.inputs[0]
    found = select.args["from_"].this
    own = found.alias or (found.this.alias_or_name if isinstance(found, Windowed) else found.name)
    return Flow(database, (_Entry(plan, alias or own or "flow"),), (), frozenset(context.uses))


def _one_select(text: str) -> exp.Select:
    parsed = sql.parse(text)
    if len(parsed) != 1 or not isinstance(parsed[0].ast, exp.Select):
        raise _too_much(text)
    return parsed[0].ast


def _too_much(text: str) -> BindError:
    return BindError("only expressions are allowed here", detail=f"got {text}", hint="use one method per clause")


def _parts(select: exp.Select) -> set[str]:
    """The clauses that a SELECT has."""
    return {key for key, value in select.args.items() if value}


def _quoted(name: str) -> str:
    """A name as it stands in a text."""
    plain = name.isidentifier() and name.upper() not in Tokenizer.KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'
