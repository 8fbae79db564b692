"""The source text of an automaton's loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.kernels.accumulators import Given, Place, entered
from millstream.kernels.accumulators import imports as accumulator_imports
from millstream.kernels.events import loops, questions
from millstream.kernels.events.expressions import QUESTIONS, TABLE, Expressions
from millstream.kernels.events.layout import AutomatonLayout, argument_name, is_pair
from millstream.kernels.source.passes import imports_of
from millstream.kernels.source.writer import Writer
from millstream.plan.events.algebra import DUR
from millstream.plan.events.automata import AGGREGATED, EVENT, INSTANCE, AutomatonEdge
from millstream.types import SqlType

_LOOPS = (
    "START", "END", "NEXT", "SUCCESSOR", "UNTOUCHED", "GONE", "FREE", "USED", "LIVE", "EPOCH", "MARKED",
    "OUT", "NEED_ROWS", "NEED_OUT", "NEED_MARKS", "NEAR", "AHEAD", "take", "give_back", "append", "unlink",
    "wait", "mark", "commit",
)  # fmt: skip

_TEXTS = ("text_starts", "text_lengths", "text_arena")
_TOO_LARGE = 'raise OverflowError("the sum does not fit its type")'


class AutomatonSource:
    """Writes `run`, which takes events in order of their ends, and gives back the first that there was no room for, or
    an answer of Python is missing for. `look` asks what `run` would ask, and changes nothing."""

    def __init__(self, layout: AutomatonLayout) -> None:
        self.layout = layout
        self.spec = layout.spec
        self.expressions = Expressions(layout)
        self._looks = False
        """whether it is `look` that is written"""
        self.source = self._module()

    @property
    def parameters(self) -> list[str]:
        """What `run` is called with."""
        names = ["first", "stop", "upto", "ports", "places", "starts", "ends"]
        for port in range(len(self.spec.inputs)):
            names += [f"{what}{port}_{k}" for k in range(len(self.layout.looked_at[port])) for what in ("a", "b")]
            names += [f"c{port}_{k}" for k in range(len(self.layout.coded[port]))]
        return [
            *names,
            "rows",
            "reals",
            "halves",
            "code_words",
            "numbers",
            "lists",
            "meta",
            "marked",
            "out",
            "out_reals",
            "whole",
            "real",
            *(_TEXTS if self.layout.compares_texts else ()),
            *(TABLE if self.expressions.asked else ()),
        ]

    def _module(self) -> str:
        body = Writer(2)
        self._event(body)
        looks = []
        if self.expressions.asked:
            self._looks = True
            looking = Writer(2)
            self._event(looking)
            looks = [self._look(looking)]
        own = "\n\n".join(part for part in (*self.expressions.helpers(), *looks, self._run(body)) if part)
        imports = "".join(f"{line}\n" for line in imports_of(loops.__name__, _LOOPS, own))
        if looks:
            imports += "".join(f"{line}\n" for line in imports_of(questions.__name__, QUESTIONS, own))
        if any(self.layout.accumulators):
            imports = accumulator_imports(own) + imports
        imports += "from millstream.kernels.jit.primitives import COMPILED, prefetch\n"
        return f"import numpy as np\n{imports}\n\n{own}"

    def _look(self, body: Writer) -> str:
        write = Writer(0)
        with write.block(f"def look({', '.join(self.parameters)}):"):
            write(*self.expressions.constants.lines(), *self._texts())
            with write.block("for i in range(first, stop):"):
                write("now = ends[i]", "began = starts[i]", f"r = {self._place_of('i')}")
                write.lines += body.lines
                with write.block("if counts[FULL] or counts[OPENED] >= 4096:"):
                    write("return i + 1")
            write("return stop")
        return write.text

    def _place_of(self, event: str) -> str:
        """The place of an event among those of its stream."""
        return f"places[{event}]" if len(self.spec.inputs) > 1 else event

    def _run(self, body: Writer) -> str:
        write = Writer(0)
        with write.block(f"def run({', '.join(self.parameters)}):"):
            write(*self.expressions.constants.lines(), *self._texts())
            write("far = COMPILED and rows.size > NEAR")
            with write.block("for i in range(first, stop):"):
                with write.block("if far and i + 2 * AHEAD < stop:"):
                    self._soon(write)
                write("now = ends[i]")
                with write.block("if now != meta[EPOCH]:"):
                    with write.block("if meta[MARKED] > 0:"):
                        write("commit(rows, halves, code_words, lists, meta, marked)")
                    write("meta[EPOCH] = now")
                write("began = starts[i]", f"r = {self._place_of('i')}")
                if self.expressions.asked:
                    write(f"look(i, i + 1, {', '.join(self.parameters[2:])})")
                    with write.block("if counts[OPENED] or counts[FULL]:"):
                        write("return i")
                # no other event ends now
                write("alone = ends[i + 1] != now if i + 1 < stop else upto > now")
                write.lines += body.lines
            write("return stop")
        return write.text

    def _soon(self, write: Writer) -> None:
        """Let the processor bring near what the events behind this one will look at: lists of instances, then their
        first and last ones, while it works on others."""
        for what, ahead in (("lists", "2 * AHEAD"), ("rows", "AHEAD")):
            write(f"soon = {self._place_of(f'i + {ahead}')}")
            for number, state in enumerate(self.spec.states):
                pair = self.spec.indexes[number]
                if pair is None:
                    continue
                is_of_port = f"ports[i + {ahead}] == {state.port}" if len(self.spec.inputs) > 1 else "True"
                with write.when(is_of_port):
                    write(f"code = {self._codes_of_events(state.port, pair[0])}[soon]")
                    if what == "lists":
                        write(f"prefetch(lists, ({number} * lists.shape[1] + code) * lists.shape[2])")
                        continue
                    with write.block("if code >= 0:"):
                        write(*(f"prefetch(rows, lists[{number}, code, {end}] * rows.shape[1])" for end in (0, 1)))

    def _texts(self) -> list[str]:
        """Lines that give aggregates of texts the arrays by which texts are compared."""
        return [f"{arg.texts} = {', '.join(_TEXTS)}" for arg in self.layout.compared_texts]

    def _event(self, write: Writer) -> None:
        for port in range(len(self.spec.inputs)):
            if len(self.spec.inputs) == 1:
                self._event_of(write, port)
            else:
                with write.block(f"if ports[i] == {port}:"):
                    self._event_of(write, port)

    def _event_of(self, write: Writer, port: int) -> None:
        for k in range(len(self.layout.looked_at[port])):
            write(f"v_e{port}_{k} = a{port}_{k}[r]", f"n_e{port}_{k} = not b{port}_{k}[r]")
        states = [number for number, state in enumerate(self.spec.states) if state.port == port]
        starts = [edge for edge in self.layout.starts if edge.port == port]
        if self._looks:
            states = [number for number in states if self.expressions.asks(number)]
            starts = starts if self.expressions.asks(None) else []
        for number in states:
            self._here(write, port, number)
        if not self._looks:
            self._room(write, states, len(starts))
        for number in states:
            with write.when(f"here{number}"):
                self._instances(write, number)
        for edge in starts:
            self._start(write, edge)

    def _here(self, write: Writer, port: int, number: int) -> None:
        """Which instances of a state an event looks at, if any."""
        write(f"code{number} = {self._event_code(port, number)}")
        state, pair = self.spec.states[number], self.spec.indexes[number]
        conditions = [c for c in state.conditions if not is_pair(c, pair) and _of_event_alone(c)]
        known = [] if pair is None else [f"code{number} >= 0"]
        tests = [self.expressions.condition(condition, port, None) for condition in conditions]
        write(f"here{number} = {' and '.join([*known, *tests]) or 'True'}")
        with write.block(f"if here{number} and lists[{number}, code{number}, 2] == 0:"):
            write(f"here{number} = False")

    def _room(self, write: Writer, states: list[int], starts: int) -> None:
        """Whether there is room for all that may come of an event."""
        rows, out, marks = [str(starts)], ["0"], ["0"]
        for number in states:
            edges = self.spec.leaving(number)
            ends = sum(edge.target == self.spec.end for edge in edges)
            count = f"(lists[{number}, code{number}, 2] if here{number} else 0)"
            marks.append(count)
            if len(edges) > ends:
                rows.append(f"{len(edges) - ends} * {count}")
            if ends:
                out.append(f"{ends} * {count}")
        write(f"need_rows = {' + '.join(rows)}", f"need_out = {' + '.join(out)}", f"need_marks = {' + '.join(marks)}")
        room = "rows.shape[0] - meta[LIVE] < need_rows"
        full = f"{room} or out.shape[0] - meta[OUT] < need_out or marked.shape[0] - meta[MARKED] < need_marks"
        with write.block(f"if {full}:"):
            write("meta[NEED_ROWS] = need_rows", "meta[NEED_OUT] = need_out", "meta[NEED_MARKS] = need_marks")
            write("return i")

    def _event_code(self, port: int, number: int) -> str:
        """The code of the event's value by which instances of a state are found; negative if it is NULL."""
        pair = self.spec.indexes[number]
        if pair is None:
            return "0"
        return self._code_of_event(port, pair[0])

    def _code_of_event(self, port: int, name: str) -> str:
        if self.spec.inputs[port][name].type.is_coded:
            place = self.layout.looked_at[port].index(name)
            return f"(-1 if n_e{port}_{place} else v_e{port}_{place})"
        return f"{self._codes_of_events(port, name)}[r]"

    def _codes_of_events(self, port: int, name: str) -> str:
        """The codes of a column, those of NULLs included where it is of texts."""
        if self.spec.inputs[port][name].type.is_coded:
            return f"a{port}_{self.layout.looked_at[port].index(name)}"
        return f"c{port}_{self.layout.coded[port].index(name)}"

    def _instances(self, write: Writer, number: int) -> None:
        spec, state = self.spec, self.spec.states[number]
        bound = spec.bounds[number]
        write(f"x = lists[{number}, code{number}, 0]")
        with write.block("while x >= 0:"):
            write("following = halves[x, NEXT]")
            if not self._looks:
                with write.block("if far:"):
                    write("prefetch(rows, following * rows.shape[1])")
            with write.block("if began > rows[x, END]:"):
                write("v_d = now - rows[x, START]")
                if bound is not None:
                    place = self.expressions.constants.number(("bound", number), bound)
                    with write.block(f"if v_d > v_i{place}:"):
                        if not self._looks:
                            with write.block("if halves[x, SUCCESSOR] == UNTOUCHED:"):
                                write(f"unlink(halves, lists, {number}, code{number}, x)", "give_back(halves, meta, x)")
                        write("x = following", "continue")
                self._load(write, number)
                pair = spec.indexes[number]
                conditions = [c for c in state.conditions if not is_pair(c, pair) and not _of_event_alone(c)]
                with write.when(self.expressions.all(conditions, state.port, number)):
                    self._affected(write, number)
            write("x = following")

    def _load(self, write: Writer, number: int) -> None:
        state = self.spec.states[number]
        asked = (*state.conditions, *(arg for each in state.aggregates for arg in each.args))
        read = {name for expr in asked for name in columns_of(expr)}
        for edge in self.spec.leaving(number):
            for expr in (*edge.conditions, *(value for _, value in edge.values)):
                read |= columns_of(expr)
        for place, own in enumerate(self.spec.states[number].columns):
            if INSTANCE + own.name in read:
                word, bit = self.layout.null(number, own.name)
                write(
                    f"v_q{number}_{place} = {_read(own.type, 'rows', 'reals', 'x', self.layout.word(number, own.name))}"
                )
                write(f"n_q{number}_{place} = (rows[x, {word}] >> {bit}) & 1 != 0")

    def _affected(self, write: Writer, number: int) -> None:
        rebinds = [edge for edge in self.spec.leaving(number) if edge.target == number]
        for edge in self.spec.leaving(number):
            if edge.target != number:
                self._forward(write, edge, number)
        write("stays = False")
        for edge in rebinds:
            with self._taking(write, edge, number):
                self._rebind(write, edge, number)
        if self._looks:
            return
        with write.block("if not stays:"):
            with write.block("if alone and halves[x, SUCCESSOR] == UNTOUCHED:"):
                write(f"unlink(halves, lists, {number}, code{number}, x)", "give_back(halves, meta, x)")
            with write.block("else:"):
                write("mark(halves, meta, marked, x)")

    def _forward(self, write: Writer, edge: AutomatonEdge, number: int) -> None:
        with self._taking(write, edge, number):
            if edge.target == self.spec.end:
                self._emit(write, edge, number)
            else:
                self._create(write, edge, number)

    @contextmanager
    def _taking(self, write: Writer, edge: AutomatonEdge, number: int) -> Iterator[None]:
        """What happens if an edge is taken: its aggregates take the event in, unless a condition that reads none of
        them fails before."""
        late = [c for c in edge.conditions if any(name.startswith(AGGREGATED) for name in columns_of(c))]
        early = [condition for condition in edge.conditions if condition not in late]
        with write.when(self.expressions.all(early, edge.port, number)):
            self._aggregate(write, edge, number)
            with write.when(self.expressions.all(late, edge.port, number)):
                yield

    def _aggregate(self, write: Writer, edge: AutomatonEdge, number: int) -> None:
        """The lanes of the instance's aggregates with the event in plain variables, and what they come to."""
        exprs = (*edge.conditions, *(value for _, value in edge.values))
        read = {name for expr in exprs for name in columns_of(expr)}
        for place, own in enumerate(self.spec.states[number].aggregates):
            is_read = AGGREGATED + own.name in read
            if not is_read and edge.target != number:
                continue
            accumulator, at, name = self.layout.accumulators[number][place], _lanes(number, place), f"t{number}_{place}"
            for lane, column in self.layout.lanes(number, place):
                word = self.layout.word(number, column.name)
                write(f"{at[lane.name]} = {_read(column.type, 'rows', 'reals', 'x', word)}")
            values: list[Given] = []
            for i, arg in enumerate(own.args):
                value, null = self.expressions.value(
                    write, arg, edge.port, number, argument_name(number, place, i).replace("t", "z", 1)
                )
                value = f"(1 if {value} else 0)" if arg.type.kernel == "bool" else value
                values.append((value, "True" if null == "False" else f"not {null}"))
            write(*entered(accumulator.state, at, *values))
            if is_read:
                write(
                    "known = True", *accumulator.result(at, f"v_{name}", "known", _TOO_LARGE), f"n_{name} = not known"
                )
                if own.type.kernel == "bool":
                    write(f"v_{name} = v_{name} != 0")

    def _start(self, write: Writer, edge: AutomatonEdge) -> None:
        if any(DUR in columns_of(condition) for condition in edge.conditions):
            write("v_d = now - began")
        with write.when(self.expressions.all(edge.conditions, edge.port, None)):
            if edge.target == self.spec.end:
                self._emit(write, edge, None)
            else:
                self._create(write, edge, None)

    def _create(self, write: Writer, edge: AutomatonEdge, source: int | None) -> None:
        """A new instance; none if it has no value by which it could be found."""
        if self._looks:
            self._ask_values(write, edge, source)
            return
        write(f"code = {self._new_code(edge)}")
        with write.when("code >= 0" if self.spec.indexes[edge.target] is not None else "True"):
            write("y = take(halves, meta)")
            write(f"rows[y, START] = {'began' if source is None else 'rows[x, START]'}", "rows[y, END] = now")
            self._values(write, edge, source, "y")
            write(f"append(halves, numbers, lists, meta, {edge.target}, code, y)")

    def _rebind(self, write: Writer, edge: AutomatonEdge, number: int) -> None:
        if self._looks:
            self._ask_values(write, edge, number)
            return
        write(f"code = {self._new_code(edge)}")
        with write.block(f"if alone and halves[x, SUCCESSOR] == UNTOUCHED and code == code{number}:"):
            self._values(write, edge, number, "x")
            write("rows[x, END] = now", "stays = True")
        with write.block("elif code >= 0:"):
            write("y = take(halves, meta)")
            write("rows[y, START] = rows[x, START]", "rows[y, END] = now")
            self._values(write, edge, number, "y")
            with write.block(f"if code == code{number} and halves[x, SUCCESSOR] < 0:"):
                write("mark(halves, meta, marked, x)", "wait(halves, numbers, meta, x, y)", "stays = True")
            with write.block("else:"):
                write(f"append(halves, numbers, lists, meta, {number}, code, y)")

    def _new_code(self, edge: AutomatonEdge) -> str:
        """The code by which an instance will be found in the state that an edge leads to."""
        pair = self.spec.indexes[edge.target]
        return "0" if pair is None else self._code_of(edge, pair[1])

    def _code_of(self, edge: AutomatonEdge, name: str) -> str:
        value = dict(edge.values)[name]
        assert isinstance(value, Column)
        own = value.name[2:]
        if value.name.startswith(EVENT):
            return self._code_of_event(edge.port, own)
        word = self.layout.code_word(edge.source, own)
        if not self.layout.column(edge.source, own).is_coded:
            return f"rows[x, {word}]"
        null, bit = self.layout.null(edge.source, own)
        return f"(-1 if (rows[x, {null}] >> {bit}) & 1 else rows[x, {word}])"

    def _values(self, write: Writer, edge: AutomatonEdge, source: int | None, row: str) -> None:
        target = edge.target
        made = []
        for place, (name, value) in enumerate(edge.values):
            made.append((name, value.type, *self.expressions.value(write, value, edge.port, source, f"w{place}")))
        for place in range(len(self.spec.states[target].aggregates)):
            made += self._lane_values(target, place, goes_on=source == target)
        codes = []
        for name, word in self.layout.codes[target].items():
            write(f"k{word} = {self._code_of(edge, name)}")
            codes.append(word)
        nulls: dict[int, list[str]] = {}
        for name, type_, text, null in made:
            write(_assign(type_, "rows", "reals", row, self.layout.word(target, name), text))
            word, bit = self.layout.null(target, name)
            if null != "False":
                nulls.setdefault(word, []).append(f"((1 << {bit}) if {null} else 0)")
        for word in range(loops.HEADER, self.layout.values_begin):
            write(f"rows[{row}, {word}] = {' | '.join(nulls.get(word, ['0']))}")
        for word in codes:
            write(f"rows[{row}, {word}] = k{word}")

    def _lane_values(self, state: int, place: int, goes_on: bool) -> list[tuple[str, SqlType, str, str]]:
        """The lanes of an aggregate that goes on, or begins: columns, types, values, and whether these are NULL."""
        lanes, at = self.layout.lanes(state, place), _lanes(state, place)
        found = []
        for lane, column in lanes:
            value = at[lane.name] if goes_on else "0.0" if lane.is_float else "0"
            null = "False"
            if column.type.is_coded:
                # the lane before it tells whether there is a text
                null = f"{at[lanes[0][0].name]} != 1" if goes_on else "True"
            found.append((column.name, column.type, value, null))
        return found

    def _ask_values(self, write: Writer, edge: AutomatonEdge, source: int | None) -> None:
        for place, (_, value) in enumerate(edge.values):
            if self.expressions.is_asked(value, edge.port, source):
                self.expressions.answer(write, value, edge.port, source, f"w{place}")

    def _emit(self, write: Writer, edge: AutomatonEdge, source: int | None) -> None:
        if self._looks:
            self._ask_values(write, edge, source)
            return
        write("o = meta[OUT]", "out[o, 0] = i", f"out[o, 1] = {'began' if source is None else 'rows[x, START]'}")
        nulls: dict[int, list[str]] = {}
        for place, (column, (_, value)) in enumerate(zip(self.layout.outputs, edge.values, strict=True)):
            if column.word is None:
                continue
            text, null = self.expressions.value(write, value, edge.port, source, f"u{place}")
            write(_assign(value.type, "out", "out_reals", "o", column.word, text))
            word, bit = self.layout.output_null(place)
            if null != "False":
                nulls.setdefault(word, []).append(f"((1 << {bit}) if {null} else 0)")
        for word in range(2, 2 + self.layout.output_nulls):
            write(f"out[o, {word}] = {' | '.join(nulls.get(word, ['0']))}")
        write("meta[OUT] = o + 1")


def _lanes(state: int, place: int) -> Place:
    """The lanes of an aggregate in plain variables."""
    return Place.local(f"l{state}_{place}_")


def _of_event_alone(condition: Expr) -> bool:
    return all(name.startswith(EVENT) for name in columns_of(condition))


def _read(type_: SqlType, whole: str, real: str, row: str, word: int) -> str:
    if type_.kernel == "float64":
        return f"{real}[{row}, {word}]"
    return f"{whole}[{row}, {word}] != 0" if type_.kernel == "bool" else f"{whole}[{row}, {word}]"


def _assign(type_: SqlType, whole: str, real: str, row: str, word: int, text: str) -> str:
    if type_.kernel == "float64":
        return f"{real}[{row}, {word}] = {text}"
    return f"{whole}[{row}, {word}] = {f'1 if {text} else 0' if type_.kernel == 'bool' else text}"
