"""A program in a mode as the source of two functions: `arrive` works on tuples, `close` ends groups.

Both stop early, between two tuples, where an array may become too small, and go on when they are called again. Values
that do not fit are noted in `trouble` instead of raised: that keeps the loops free of exits.
"""

from __future__ import annotations

from functools import cached_property

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.expressions.kernel.forms import not_, zero
from millstream.kernels.accumulators import imports
from millstream.kernels.batch import BEGIN
from millstream.kernels.programs.arithmetic import arithmetic_source
from millstream.kernels.programs.engine import Mode, Running, Sliding, Tumbling
from millstream.kernels.programs.layout import SEEN, Cells, ProgramLayout
from millstream.kernels.programs.nullness import Place, never_null
from millstream.kernels.programs.source_room import Room
from millstream.kernels.programs.source_values import Body, plain_type
from millstream.kernels.programs.statements import Statements
from millstream.kernels.programs.storage import Pair, append, drop, load_cell, store, stored, unlink
from millstream.kernels.source.passes import lean
from millstream.kernels.source.writer import Writer, block
from millstream.plan.programs.facts import returns_one_row, uses_sqlcode
from millstream.plan.programs.nodes import SQLCODE, Program, Statement
from millstream.records import dataclass

OVERFLOW, SEVERAL_ROWS = 1, 2
"""What `trouble` says first; then it says whether a pool was too small, rather than the room for what is returned."""

_HEADER = f"""import numpy as np
from millstream.kernels.jit.primitives import difference, place, product, remainder, total
from millstream.kernels.programs.loops import bucket, chain, unchain

OVERFLOW = {OVERFLOW}
SEVERAL_ROWS = {SEVERAL_ROWS}

"""

_ARRAYS = (
    "c", "f", "heads", "order", "arg", "ok", "out", "null", "record", "records", "origin", "stamp", "time", "slots",
    "ids",
)  # fmt: skip
"""Arrays whose indexes are never negative, without the numbers that some have."""

_ORDERING = """from millstream.kernels.programs.ordering import enter, grow, leave, place_of_new, position

"""


@dataclass(frozen=True)
class Generated:
    """Kernel source, and what its callers must know: where things lie, the text constants whose codes it takes, and
    whether every tuple returns exactly one row, so that it does not tell which."""

    layout: ProgramLayout
    header: str
    written: str
    texts: tuple[str, ...]
    exact: bool

    @cached_property
    def source(self) -> str:
        """What is compiled."""
        return self.header + imports(self.written) + lean(self.written, "trouble", "0", _is_array)


def generate(program: Program, mode: Mode, keyed: bool, nulls: bool = True) -> Generated:
    """The source of a program; NotCompilable if it has none. Without `nulls` it serves as long as no argument has ever
    been NULL, which saves much asking."""
    schemas = (program.parameters, program.result, *(table.schema for table in program.tables))
    if any(field.type.is_nested for schema in schemas for field in schema):
        raise NotCompilable("it has an array")
    layout = ProgramLayout(program, mode, keyed)
    exact = returns_one_row(program, mode)
    texts: dict[str, str] = {}
    helpers: set[str] = set()
    known = frozenset() if nulls else never_null(program, layout.window is not None and layout.window.is_ring)
    functions = [_Function(layout, exact, name, texts, helpers, known, nulls).text() for name in ("arrive", "close")]
    header = _HEADER + (_ORDERING if any(cells.order is not None for cells in layout.cells) else "")
    written = "\n\n".join([arithmetic_source(helpers), *functions])
    return Generated(layout, header, written, tuple(texts), exact)


class _Function(Room):
    """Writes one of the two functions: when which state of the program runs."""

    def __init__(
        self, layout: ProgramLayout, exact: bool, name: str, texts: dict[str, str], helpers: set[str],
        known: frozenset[Place], nulls: bool,
    ) -> None:  # fmt: skip
        self.layout = layout
        self.program = layout.program
        self.mode = layout.mode
        self.name = name
        self.exact = exact and name == "arrive"
        self.texts = texts
        self.write = Writer()
        names = {f":{field.name}": f"a{i}" for i, field in enumerate(self.program.parameters)}
        self.body = Body(self.program, names, "", self._return)
        if uses_sqlcode(layout.program):
            self.body.sqlcode = names[SQLCODE] = "code"
        self.arguments = set() if nulls else {f"a{i}" for i in range(len(self.program.parameters))}
        self.known = known
        self.statements = Statements(layout, self.write, helpers, set(self.arguments), known, texts)
        for registers in layout.registers:
            for i, field in enumerate(registers.table.schema):
                if (registers.table.name, field.name) in known:
                    self.statements.present.add(self._register(registers.table.name, i))
        self.guard = "True"

    def text(self) -> str:
        (self._arrive if self.name == "arrive" else self._close)()
        body = self.write.lines
        self.write = Writer()
        self._begin()
        first = self.write.lines
        self.write = Writer()
        self._end()
        head = f"def {self.name}({', '.join(self._parameters())}):"
        return "\n".join([head, *first, *body, *self.write.lines])

    def _parameters(self) -> list[str]:
        args = [f"{kind}{i}" for i in range(len(self.program.parameters)) for kind in ("arg", "ok")]
        cells = [f"{name}{c.number}" for c in self.layout.cells for name in ("c", "heads", "order")]
        outs = [f"{kind}{i}" for i in range(len(self.program.result)) for kind in ("out", "null")]
        fixed = ["start", "returned", "slots", "time", "ids", "upto", "codes", "trouble"]
        return [*fixed, *args, "record", "meta", *cells, "origin", "stamp", *outs]

    def _begin(self) -> None:
        write = self.write
        write("records = record.view(np.float64)")
        for cells in self.layout.cells:
            n = cells.number
            write(f"f{n} = c{n}.view(np.float64)", f"used{n} = meta[{3 * n}]", f"free{n} = meta[{3 * n + 1}]")
            write(*(f"{name} = 0" for name in cells.locals))
        if self._is_active:
            write(f"eldest = meta[{3 * len(self.layout.cells)}]", f"newest = meta[{3 * len(self.layout.cells) + 1}]")
        if self.body.sqlcode is not None:
            write("v_code = 0", "n_code = False")
        for i, field in enumerate(self.program.parameters):
            write(f"v_a{i} = {zero(plain_type(field.type))}", f"n_a{i} = True")
        for i, variable in enumerate(self.texts.values()):
            write(f"v_{variable} = codes[{i}]", f"n_{variable} = False")
        for registers in self.layout.registers:
            for i, field in enumerate(registers.table.schema):
                name = self._register(registers.table.name, i)
                write(f"v_{name} = {zero(plain_type(field.type))}", f"n_{name} = True")
        write("seen = 0", "now = 0", "tuple_number = 0", "yields = True", "at = 0", "stopped = -1", "current = 0")
        write("wrong = 0")

    def _end(self) -> None:
        for cells in self.layout.cells:
            n = cells.number
            self.write(f"meta[{3 * n}] = used{n}", f"meta[{3 * n + 1}] = free{n}")
        if self._is_active:
            count = 3 * len(self.layout.cells)
            self.write(f"meta[{count}] = eldest", f"meta[{count + 1}] = newest")
        self.write(*block("if wrong != 0:", "trouble[0] = OVERFLOW"), "return stopped, returned")

    # -- tuples ----------------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        write = self.write
        if not self.layout.keyed:
            self._enter()
        if self._is_active:
            with write.block("for r in range(start, len(time) + 1):"):
                self._expire_actively()
                write(*block("if stopped >= 0 or r == len(time):", "break"))
                self._tuple()
        else:
            with write.block("for r in range(start, len(time)):"):
                self._tuple()
        if not self.layout.keyed:
            self._leave()

    def _tuple(self) -> None:
        write, mode, program = self.write, self.mode, self.program
        if self.layout.keyed:
            write(f"at = np.int64(slots[r]) * {self.layout.width}")
            self._enter()
        self.stop_if_full(program.initialize, program.iterate, *program.expiries, program.terminate)
        write("tuple_number = r", "seen += 1")
        if isinstance(mode, Sliding) and mode.unit == "range":
            write("now = time[r]")
        if isinstance(mode, Sliding) and mode.unit == "rows" and mode.every is not None:
            write(f"yields = seen % {mode.every} == 0")
            self.guard = "yields"
        if isinstance(mode, Sliding) and not mode.active:
            self._expire_passively(mode)
        for i, field in enumerate(program.parameters):
            value = f"(arg{i}[r] != 0)" if field.type.name == "BOOLEAN" else f"arg{i}[r]"
            write(f"v_a{i} = {value}", f"n_a{i} = not ok{i}[r]")
        if isinstance(mode, Tumbling):
            self._tumble(mode)
        else:
            if isinstance(mode, Sliding):
                self._enter_window(mode)
            self._first_or_next("seen == 1")
            if isinstance(mode, Running) and mode.total:
                self._terminate()
        if self.layout.keyed:
            self._leave()

    def _first_or_next(self, first: str) -> None:
        program = self.program
        if program.initialize == program.iterate:
            self.statements.statements(program.iterate, self.body)
            return
        with self.write.block(f"if {first}:"):
            self.statements.statements(program.initialize, self.body)
        with self.write.block("else:"):
            self.statements.statements(program.iterate, self.body)

    def _tumble(self, mode: Tumbling) -> None:
        write = self.write
        write(f"yields = seen == {mode.every}")
        with write.when(f"seen > {mode.every - mode.size}" if mode.every > mode.size else "True"):
            self.guard = "False" if self.program.terminate else "yields"
            self._first_or_next(f"seen == {mode.every - mode.size + 1}")
            self.guard = "True"
            with write.block("if yields:"):
                self._terminate()
                self._drop()

    def _terminate(self) -> None:
        """TERMINATE belongs to no tuple: parameters are NULL there."""
        self.write(*(f"n_a{i} = True" for i in range(len(self.program.parameters))))
        self.statements.present -= self.arguments
        self.statements.statements(self.program.terminate, self.body)
        self.statements.present |= self.arguments

    def _drop(self) -> None:
        """Empty a group's tables and begin to count again."""
        for cells in self.layout.cells:
            drop(self.write, cells)
        self.write("seen = 0")

    def _enter_window(self, mode: Sliding) -> None:
        cells = self.layout.window
        assert cells is not None
        known = {"time": "now", "id": "ids[r]" if mode.active else "seen", "owner": "at"}
        values = [
            (f"v_a{i}", "False" if f"a{i}" in self.arguments else f"n_a{i}")
            for i in range(len(self.program.parameters))
        ]
        lanes = {name: text for name, text in known.items() if name in cells.lanes}
        append(self.write, cells, values, lanes, bool(self.arguments))

    # -- expiry ----------------------------------------------------------------------------------------------------

    def _expire_passively(self, mode: Sliding) -> None:
        windows = zip(self.layout.windows, mode.sizes, self.program.expiries, strict=True)
        # From the shortest on: a tuple has left all others before it leaves the one that holds it.
        for cells, size, expire in reversed(list(windows)):
            n, width = cells.number, cells.width
            oldest = f"base{n} + ({cells.first} & mask{n}) * {width}" if cells.is_ring else f"head{n} * {width}"
            some = f"{cells.first} < end{n}" if cells.is_ring else f"head{n} != 0"
            if mode.unit == "range":
                self.write(f"since = {_ago('now', size)}")
                due = f"while {some} and c{n}[{oldest} + {cells.lanes['time']}] < since:"
            elif cells.is_ring:
                due = f"if end{n} - {cells.first} >= {size}:"
            else:
                due = f"while {some} and c{n}[{oldest} + {cells.lanes['id']}] <= seen - {size}:"
            with self.write.block(due):
                self._expire_head(cells, oldest, expire)

    def _expire_head(self, cells: Cells, oldest: str, expire: tuple[Statement, ...]) -> None:
        """Run EXPIRE for the first tuple of a window of the group, and take it out."""
        n, write = cells.number, self.write
        if not cells.is_ring:
            write(f"leaving = head{n}", "current = leaving")
        if expire:
            write(f"oldest_at = {oldest}")
            load_cell(write, cells, "oldest_at", {i: f"a{i}" for i in range(len(cells.table.schema))})
            self.statements.statements(expire, self.body)
        if cells.is_ring:
            write(f"{cells.first} += 1")
            return
        with write.block(f"if head{n} == leaving:"):
            unlink(write, cells, "leaving", "0")

    def _expire_actively(self) -> None:
        """Run EXPIRE for all tuples whose time has passed, whichever group they are of."""
        mode, cells, write = self.mode, self.layout.window, self.write
        assert isinstance(mode, Sliding) and cells is not None
        n, width = cells.number, cells.width
        write("due = upto", *block("if r < len(time):", "due = time[r]"), f"since = {_ago('due', mode.size)}")
        time = f"c{n}[eldest * {width} + {cells.lanes['time']}]"
        with write.block(f"while eldest != 0 and {time} < since:"):
            if self.layout.keyed:
                write(f"at = c{n}[eldest * {width} + {cells.lanes['owner']}]")
                self._enter()
            self.stop_if_full(self.program.expire)
            write(f"now = {time} + {mode.size}", f"tuple_number = -1 - c{n}[eldest * {width} + {cells.lanes['id']}]")
            self._expire_head(cells, f"eldest * {width}", self.program.expire)
            if self.layout.keyed:
                self._leave()

    # -- groups ----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        with self.write.block("for r in range(start, len(slots)):"):
            self.write(f"at = np.int64(slots[r]) * {self.layout.width}", "tuple_number = r")
            self._enter()
            self.stop_if_full(self.program.terminate)
            self._terminate()
            self._drop()
            self._leave()

    def _enter(self) -> None:
        """Load what is known of the group whose record is at `at`."""
        self.write(f"seen = record[at + {SEEN}]")
        for registers in self.layout.registers:
            for i, field in enumerate(registers.table.schema):
                name = self._register(registers.table.name, i)
                self.write(f"v_{name} = {stored('record', 'records', f'at + {registers.lane(i)}', field.type)}")
                self.write(f"n_{name} = (record[at + {registers.nulls}] >> {i}) & 1 != 0")
        for cells in self.layout.cells:
            self.write(*(f"{name} = record[at + {cells.start + i}]" for i, name in enumerate(cells.locals)))
            if cells.is_ring:
                self.write(f"mask{cells.number} -= 1")

    def _leave(self) -> None:
        self.write(f"record[at + {SEEN}] = seen")
        for registers in self.layout.registers:
            nulls = []
            for i, field in enumerate(registers.table.schema):
                name = self._register(registers.table.name, i)
                store(self.write, "record", "records", f"at + {registers.lane(i)}", field.type, f"v_{name}")
                if (registers.table.name, field.name) not in self.known:
                    nulls.append(f"int(n_{name}) << {i}")
            if nulls:
                self.write(f"record[at + {registers.nulls}] = {' | '.join(nulls)}")
        for cells in self.layout.cells:
            self.write(*(f"record[at + {cells.start + i}] = {name}" for i, name in enumerate(cells.locals)))
            if cells.is_ring:
                self.write(f"record[at + {cells.start + 1}] = mask{cells.number} + 1")

    # -- returned rows ---------------------------------------------------------------------------------------------

    def _return(self, values: list[Pair]) -> None:
        if self.guard == "False":
            return
        with self.write.when(self.guard):
            place = "r" if self.exact else "returned"
            if not self.exact:
                self.write("origin[returned] = tuple_number", *(["stamp[returned] = now"] if self._is_active else []))
            for i, (value, null) in enumerate(values):
                self.write(f"null{i}[{place}] = {null}")
                with self.write.when(not_(null)):
                    self.write(f"out{i}[{place}] = {value}")
            if not self.exact:
                self.write("returned += 1")

    @property
    def _is_active(self) -> bool:
        return isinstance(self.mode, Sliding) and self.mode.active

    def _register(self, table: str, column: int) -> str:
        return self.statements.register(table, column, self.body)


def _ago(time: str, span: int) -> str:
    """The source of the time so long before another, or the beginning of all times."""
    return f"{time} - {span} if {time} >= {BEGIN + span} else {BEGIN}"


def _is_array(name: str) -> bool:
    return name.rstrip("0123456789") in _ARRAYS
