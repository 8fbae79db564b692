"""Random queries on relations: joins, groups, set operations and subqueries over windows, all in one text for us and
for DuckDB."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from millstream.plan.relations import RangeWindow, RowsWindow
from tests.support.snapshots import Case, Row, Windowed

STREAMS = ("s", "r", "u")
TABLES = ("t0", "t1")


@dataclass(frozen=True)
class Columns:
    """The columns of what stands in FROM: those of numbers and those of text."""

    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    def beside(self, other: Columns) -> Columns:
        return Columns(self.numbers + other.numbers, self.texts + other.texts)


def random_case(seed: int) -> Case:
    """A query and rows for its streams."""
    chance = random.Random(seed)
    writer = QueryWriter(chance, chance.choices([1, 2, 3], [20, 1, 1])[0])
    sql = writer.query(2)
    used = sorted({window.stream for window in writer.windows.values()})
    how = chance.choices([None, "istream", "dstream", "rstream"], [6, 2, 2, 1])[0]
    if how == "rstream" and any(_stays(window.window) for window in writer.windows.values()):
        how = None
    return Case(sql, writer.windows, {name: random_rows(chance) for name in used}, how, writer.tables)


def _stays(window: RangeWindow | RowsWindow) -> bool:
    """Whether rows may stay for ever, so that there is no last instant."""
    return isinstance(window, RowsWindow) or window.size is None


def random_rows(chance: random.Random) -> list[Row]:
    """Some rows of a stream."""
    time, rows = chance.randrange(3), []
    for _ in range(chance.randint(0, 7)):
        time += chance.choice([0, 0, 1, 1, 2, 4])
        k, x = chance.choice([0, 1, 2, None]), chance.choice([0, 1, 2, 3, None])
        rows.append((k, x, chance.choice(["a", "b", None]), time))
    return rows


@dataclass
class QueryWriter:
    """Writes queries, noting the windows that they name."""

    chance: random.Random
    granule: int = 1
    windows: dict[str, Windowed] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    aliases: int = 0

    def query(self, depth: int) -> str:
        """A whole query."""
        kind = self.chance.choices(
            ["select", "group", "total", "distinct", "set", "where", "listed", "first", "over"],
            [4, 4, 2, 2, 3 if depth else 0, 4, 1, 2, 2],
        )[0]
        if kind == "first":
            return self._first_rows(depth)
        if kind == "set":
            return self._set_operation(depth)
        if kind == "listed":
            return self._listed_subquery()
        source, columns, where = self._from(depth)
        conditions = [*where, *self._conditions(columns)]
        if kind == "where":
            conditions.append(self._subquery_condition(columns))
        clause = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if kind == "group":
            return self._grouped(source, columns, clause)
        if kind == "total":
            calls = ", ".join(f"{call} AS a{i}" for i, call in enumerate(self._calls(columns)))
            return f"SELECT {calls} FROM {source}{clause} {{nonempty}}"
        if kind == "over":
            return f"SELECT {self._items(columns)}, {self._over(columns)} FROM {source}{clause}{self._qualify(columns)}"
        distinct = "DISTINCT " if kind == "distinct" else ""
        return f"SELECT {distinct}{self._items(columns)} FROM {source}{clause}"

    def pair(self, depth: int) -> str:
        """A query of two numbers, for one side of a set operation."""
        if depth and self.chance.random() < 0.3:
            return f"({self._set_operation(depth - 1)})"
        source, columns, where = self._from(0)
        conditions = [*where, *self._conditions(columns)]
        clause = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        one, other = (self.chance.choice(columns.numbers) for _ in range(2))
        if self.chance.random() < 0.2:
            return f"SELECT {one} AS p, count(*) AS q FROM {source}{clause} GROUP BY {one}"
        distinct = self.chance.choice(["", "", "DISTINCT "])
        return f"SELECT {distinct}{one} AS p, {other} AS q FROM {source}{clause}"

    def _first_rows(self, depth: int) -> str:
        """The first rows in an order in which only equal rows are equal."""
        query = self._set_operation(depth) if depth and self.chance.random() < 0.3 else self.pair(0)
        order = ", ".join(map(self._sorted, self.chance.sample(["p", "q"], 2)))
        offset = f" OFFSET {self.chance.randint(0, 2)}" if self.chance.random() < 0.3 else ""
        return f"{query} ORDER BY {order} LIMIT {self.chance.randint(0, 3)}{offset}"

    def _sorted(self, name: str) -> str:
        return f"{name} {self.chance.choice(['ASC', 'DESC'])} NULLS {self.chance.choice(['FIRST', 'LAST'])}"

    def _over(self, columns: Columns) -> str:
        """What window functions say of rows, where it does not depend on an order among equal ones."""
        made = []
        for i in range(self.chance.randint(1, 2)):
            made.append(f"{self._windowed(columns)} AS w{i}")
        return ", ".join(made)

    def _windowed(self, columns: Columns) -> str:
        everything = [*columns.numbers, *columns.texts]
        x = self.chance.choice(columns.numbers)
        by = f"PARTITION BY {self.chance.choice(everything)} " if self.chance.random() < 0.5 else ""
        whole = f"ORDER BY {', '.join(map(self._sorted, self.chance.sample(everything, len(everything))))}"
        some = f"ORDER BY {self._sorted(self.chance.choice(everything))}"
        near, far = self.chance.choice([("1 PRECEDING", "1 FOLLOWING"), ("UNBOUNDED PRECEDING", "CURRENT ROW"),
                                        ("CURRENT ROW", "UNBOUNDED FOLLOWING")])  # fmt: skip
        exclude = self.chance.choice(["", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"])
        frame = f"BETWEEN {near} AND {far}{exclude}"
        call = self.chance.choice([f"sum({x})", "count(*)", f"min({x})", f"max({x})", f"avg({x})"])
        places = ["row_number()", "ntile(2)", f"lag({x})", f"lead({x}, 2, -1)"]
        peers = ["rank()", "dense_rank()", "percent_rank()", "cume_dist()"]
        return self.chance.choice(
            [
                f"{self.chance.choice(places)} OVER ({by}{whole})",
                f"{self.chance.choice(peers)} OVER ({by}{some})",
                f"{call} OVER ({by}{some} GROUPS {frame})",
                f"{call} OVER ({by}{whole} ROWS {frame})",
                f"{call} OVER ({by}ORDER BY {self._sorted(x)} RANGE {frame})",
                f"{call} OVER ({by}{some})",
                f"{call} OVER ({by.strip()})",
                f"{self.chance.choice(['first_value', 'last_value'])}({x}) OVER ({by}{whole} ROWS {frame})",
                f"nth_value({x}, 2) OVER ({by}{whole} ROWS BETWEEN {near} AND {far})",
            ]
        )

    def _qualify(self, columns: Columns) -> str:
        if self.chance.random() < 0.6:
            return ""
        everything = [*columns.numbers, *columns.texts]
        by = f"PARTITION BY {self.chance.choice(everything)} " if self.chance.random() < 0.5 else ""
        return f" QUALIFY rank() OVER ({by}ORDER BY {self._sorted(self.chance.choice(everything))}) <= 2"

    def _set_operation(self, depth: int) -> str:
        op = self.chance.choice(["UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
        return f"{self.pair(depth)} {op} {self.pair(depth)}"

    def _grouped(self, source: str, columns: Columns, clause: str) -> str:
        everything = [*columns.numbers, *columns.texts]
        keys = self.chance.sample(everything, self.chance.randint(1, min(2, len(everything))))
        if self.chance.random() < 0.2:
            keys[0] = f"({self.chance.choice(columns.numbers)} + {self.chance.choice(columns.numbers)})"
        calls = self._calls(columns)
        items = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        items += [f"{call} AS a{i}" for i, call in enumerate(calls)]
        if self.chance.random() < 0.1:
            asked, own = self._asked()
            items.append(f"(count(*) IN (SELECT {self.chance.choice(own.numbers)} FROM {asked})) AS asked")
        having = f" HAVING {self.chance.choice(calls)} {self.chance.choice(['>', '<=', '<>'])} 1"
        having = having if self.chance.random() < 0.3 and "min(" not in having and "max(" not in having else ""
        numbers = tuple(key for key in keys if key in columns.numbers)
        if numbers and self.chance.random() < 0.2:
            having = f" HAVING {self._asking(Columns(numbers, ()), 0)}"
        return f"SELECT {', '.join(items)} FROM {source}{clause} GROUP BY {', '.join(keys)}{having}"

    def _calls(self, columns: Columns) -> list[str]:
        made = []
        for _ in range(self.chance.randint(1, 3)):
            number = self.chance.choice(columns.numbers)
            calls = ["count(*)", "count({})", "sum({})", "avg({})", "min({})", "max({})", "count(DISTINCT {})",
                     "sum(DISTINCT {})", "median({})", "sum({0}) FILTER (WHERE {0} > 1)",
                     "array_agg({0} ORDER BY {0})[2]", "len(array_agg({}))"]  # fmt: skip
            call = self.chance.choice(calls).format(number)
            if columns.texts and self.chance.random() < 0.1:
                call = f"{self.chance.choice(['min', 'max'])}({self.chance.choice(columns.texts)})"
            made.append(call)
        return made

    def _items(self, columns: Columns) -> str:
        names = [*columns.numbers, *columns.texts]
        chosen = self.chance.sample(names, self.chance.randint(1, len(names)))
        if self.chance.random() < 0.3:
            chosen.append(f"{self.chance.choice(columns.numbers)} + {self.chance.choice(columns.numbers)}")
        return ", ".join(f"{name} AS c{i}" for i, name in enumerate(chosen))

    def _from(self, depth: int) -> tuple[str, Columns, list[str]]:
        """What stands in FROM, its columns, and conditions for WHERE that join it."""
        items = [self._item(depth)]
        if self.chance.random() < 0.1:
            return self._beside_table(*items[0])
        for _ in range(self.chance.choices([0, 1, 2], [5, 5, 1])[0]):
            items.append(self._item(depth) if self.chance.random() < 0.9 or self.granule > 1 else self._bare())
        text, columns = items[0]
        recent = columns
        where: list[str] = []
        for sql, more in items[1:]:
            how = self.chance.choice([",", ",", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN",
                                      "ANTI JOIN", "CROSS JOIN"])  # fmt: skip
            # JOIN binds more than a comma, and sees nothing before it
            mine = self.chance.choice(columns.numbers if how == "," else recent.numbers)
            matches = f"{mine} {self.chance.choice(['=', '=', '=', '<'])} {self.chance.choice(more.numbers)}"
            text = f"{text}{'' if how == ',' else ' '}{how} {sql}"
            if how == ",":
                where.append(matches)
                recent = more
            elif how != "CROSS JOIN":
                text += f" ON {self._on(matches, more)}"
            if how not in ("SEMI JOIN", "ANTI JOIN"):
                columns = columns.beside(more)
                recent = recent if how == "," else recent.beside(more)
        return text, columns, where

    def _beside_table(self, text: str, columns: Columns) -> tuple[str, Columns, list[str]]:
        """A relation joined with a stored table."""
        alias = self._alias()
        own = Columns((f"{alias}.k", f"{alias}.x"), (f"{alias}.v",))
        how = self.chance.choice(["JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
        both = columns.beside(own) if how in ("JOIN", "LEFT JOIN") else columns
        return f"{text} {how} {self._table()} AS {alias} ON {self._related(own, columns, 0)}", both, []

    def _on(self, matches: str, more: Columns) -> str:
        if self.chance.random() < 0.25:
            return f"{matches} AND {self.chance.choice(more.numbers)} > 0"
        return matches

    def _item(self, depth: int) -> tuple[str, Columns]:
        alias = self._alias()
        if depth and self.chance.random() < 0.3:
            return f"({self._inner(depth - 1)}) AS {alias}", Columns((f"{alias}.p", f"{alias}.q"), ())
        return f"{self._window()} AS {alias}", Columns((f"{alias}.k", f"{alias}.x"), (f"{alias}.v",))

    def _bare(self) -> tuple[str, Columns]:
        """A stream without a window, beside others."""
        alias, name = self._alias(), f"w{len(self.windows)}"
        self.windows[name] = Windowed(self.chance.choice(STREAMS), RangeWindow(1), spelling="bare")
        return f"{{{name}}} AS {alias}", Columns((f"{alias}.k", f"{alias}.x"), (f"{alias}.v",))

    def _inner(self, depth: int) -> str:
        """A subquery in FROM."""
        return self.chance.choice([self.pair, self.pair, self._set_operation])(depth)

    def _alias(self) -> str:
        self.aliases += 1
        return f"i{self.aliases}"

    def _window(self) -> str:
        """A window on a stream, as its place in the text."""
        chance = self.chance
        if chance.random() < 0.7:
            size = chance.choice([1, 1, 2, 3, 5, 8, None])
            window: RangeWindow | RowsWindow = RangeWindow(size, chance.choice([1, 1, 1, 2, 3]))
        else:
            window = RowsWindow(chance.randint(1, 3), chance.choice([(), ("k",), ("k", "v")]), chance.choice([1, 1, 2]))
        if self.granule > 1:
            # windows are told in multiples of what they are seen at
            window = RangeWindow(self.granule * chance.randint(1, 3))
        name = f"w{len(self.windows)}"
        self.windows[name] = Windowed(
            chance.choice(STREAMS), window, self.granule, chance.choice(["window", "window", "brackets"])
        )
        return f"{{{name}}}"

    def _conditions(self, columns: Columns) -> list[str]:
        made = []
        if self.chance.random() < 0.3:
            number = self.chance.choice(columns.numbers)
            made.append(self.chance.choice([f"{number} > 0", f"{number} <= 2", f"{number} IS NOT NULL"]))
        if columns.texts and self.chance.random() < 0.1:
            made.append(f"{self.chance.choice(columns.texts)} = 'a'")
        return made

    # -- queries inside others -------------------------------------------------------------------------------------

    def _subquery_condition(self, columns: Columns) -> str:
        """A condition with a query in it, alone or under OR, AND and NOT."""
        made = self._asking(columns, 1)
        match self.chance.randrange(8):
            case 0:
                return f"({made} OR {self.chance.choice(columns.numbers)} > 1)"
            case 1:
                return f"({made} OR {self._asking(columns, 1)})"
            case 2:
                return f"NOT ({made} AND {self.chance.choice(columns.numbers)} > 0)"
            case 3:
                return f"NOT {made}" if not made.startswith("NOT") else made
            case 4:
                return f"({made}) IS {self.chance.choice(['NULL', 'NOT NULL', 'TRUE', 'NOT TRUE'])}"
        return made

    def _asking(self, columns: Columns, depth: int) -> str:
        """EXISTS, IN, ANY, ALL or a comparison with a value; at `depth` queries may stand in it in turn."""
        number = self.chance.choice(columns.numbers)
        source, own = self._asked()
        column = self.chance.choice(own.numbers)
        where = self._related(own, columns, depth)
        clause = f" WHERE {where}" if where and self.chance.random() < 0.7 else ""
        comparison = self.chance.choice(["=", "<", ">=", "<>"])
        call = self.chance.choice(["max", "min", "sum", "count"])
        grouped = f"{clause} GROUP BY {self.chance.choice(own.numbers)} HAVING count(*) > 1"
        return self.chance.choice(
            [
                f"{number} {comparison} (SELECT {call}({column}) FROM {source}{clause})",
                f"{number} {comparison} (SELECT coalesce({call}({column}), 1) FROM {source}{clause})",
                f"{number} {comparison} ALL (SELECT {column} FROM {source}{clause})",
                f"{number} {comparison} ANY (SELECT {column} FROM {source}{clause})",
                f"{number} IN (SELECT {column} FROM {source}{clause})",
                f"{number} NOT IN (SELECT {column} FROM {source}{clause})",
                f"{number} IN (SELECT {call}({column}) FROM {source}{clause})",
                f"{number} IN (SELECT max({column}) FROM {source}{grouped})",
                f"EXISTS (SELECT 1 FROM {source} WHERE {where})",
                f"NOT EXISTS (SELECT 1 FROM {source} WHERE {where})",
                f"EXISTS (SELECT max({column}) FROM {source}{grouped})",
            ]
        )

    def _asked(self) -> tuple[str, Columns]:
        """What a query inside another is over: a window, or a stored table."""
        alias = self._alias()
        source = self._window() if self.chance.random() < 0.6 else self._table()
        return f"{source} AS {alias}", Columns((f"{alias}.k", f"{alias}.x"), (f"{alias}.v",))

    def _table(self) -> str:
        name = self.chance.choice(TABLES)
        if name not in self.tables:
            self.tables[name] = [row[:-1] for row in random_rows(self.chance)]
        return f"{{{name}}}"

    def _related(self, own: Columns, outer: Columns, depth: int) -> str:
        """A condition on rows of a query inside another and those of the outer one."""
        mine, theirs = self.chance.choice(own.numbers), self.chance.choice(outer.numbers)
        made = f"{mine} {self.chance.choice(['=', '=', '=', '<', '<>'])} {theirs}"
        if depth and self.chance.random() < 0.25:
            return f"{made} AND {self._asking(own.beside(outer), depth - 1)}"
        return made

    def _listed_subquery(self) -> str:
        text, columns = self._item(0)
        source, own = self._asked()
        call = f"{self.chance.choice(['max', 'count', 'sum'])}({self.chance.choice(own.numbers)})"
        where = f" WHERE {self._related(own, columns, 1)}" if self.chance.random() < 0.6 else ""
        value = f"(SELECT {call} FROM {source}{where})"
        if self.chance.random() < 0.3:
            value = self._asking(columns, 1)
        elif self.chance.random() < 0.3:
            value = f"CASE WHEN {self._asking(columns, 1)} THEN {value} ELSE -1 END"
        return f"SELECT {columns.numbers[0]} AS c0, {value} AS c1 FROM {text}"
