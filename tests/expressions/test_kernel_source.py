"""Kernel source of expressions gives what the Arrow path gives, as plain Python and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from expression_cases import calls, differences, outcomes, rows_of, schema_of
from expression_kernels import columns, run, source_of

from millstream.expressions.evaluator import compile_arrow
from millstream.expressions.functions import FUNCTIONS, case, cast, resolve
from millstream.expressions.kernel.functions import MAKERS
from millstream.expressions.kernel.helpers import HELPERS, helper_source
from millstream.expressions.kernel.source import to_kernel_source
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, TIMESTAMP, VARCHAR, SqlType, from_kernel
from tests.support.expressions import is_exact, same
from tests.support.operations import CASTS, OPERATIONS, Constant, Param

# Conditions are written by the compiler itself; these rewrite to others when they are resolved.
NO_MAKER = {"and", "or", "not", "is_null", "if", "pi"} | {name for name in FUNCTIONS if name.startswith("to_")}


def check(expr: Expr, types: list[SqlType]) -> bool:
    schema = schema_of(types)
    kernel = source_of(expr, schema)
    if kernel is None:
        return False
    rows = rows_of(types)
    rows = rows.slice(0, min(300, rows.num_rows))
    bad = differences(expr, rows, run(kernel, rows, schema), outcomes(compile_arrow([expr], schema), rows, expr.type))
    assert not bad, f"{expr} is {kernel}: {bad[:5]}"
    return True


@pytest.mark.parametrize("fn,params", OPERATIONS, ids=[f"{fn}-{i}" for i, (fn, _) in enumerate(OPERATIONS)])
def test_operation(fn: str, params: tuple[Param, ...]) -> None:
    types = [param for param in params if isinstance(param, SqlType)]
    compiled = [check(expr, types) for expr in calls(fn, params, lambda type_, i: Column(type_, f"x{i}"))]
    fixed = all(isinstance(p, Constant) or p in (BIGINT, DOUBLE, BOOLEAN, TIMESTAMP) for p in params)
    function = FUNCTIONS.get(fn)
    if function is not None and function.kernel and fixed and fn != "round":
        assert any(compiled), f"{fn} is said to have a kernel form"


@pytest.mark.parametrize("safe", [False, True], ids=["cast", "try_cast"])
@pytest.mark.parametrize("source,target", CASTS, ids=[f"{a}-{b}" for a, b in CASTS])
def test_cast(source: SqlType, target: SqlType, safe: bool) -> None:
    check(cast(Column(source, "x0"), target, safe), [source])


@pytest.mark.parametrize("caught", ["try", "$failed"])
def test_what_fails_is_caught(caught: str) -> None:
    a, b, f = Column(BIGINT, "x0"), Column(BIGINT, "x1"), Column(DOUBLE, "x2")
    sums = resolve("*", (resolve("+", (a, b)), a))
    exprs = [
        *(resolve(fn, (a, b)) for fn in ("+", "-", "*", "//", "%")),
        *(resolve(fn, (a,)) for fn in ("neg", "abs")),
        sums,
        resolve(">", (sums, b)),
        resolve("/", (a, resolve("-", (b, a)))),
        cast(resolve("+", (a, b)), INTEGER),
        cast(f, BIGINT),
    ]
    for expr in exprs:
        assert check(resolve(caught, (expr,)), [BIGINT, BIGINT, DOUBLE])
    # of these, a part may have a value although an argument fails
    assert source_of(resolve(caught, (resolve("coalesce", (sums, b)),)), schema_of([BIGINT, BIGINT])) is None


def test_the_table_says_which_functions_have_a_kernel_form() -> None:
    assert {name for name, function in FUNCTIONS.items() if function.kernel} - NO_MAKER == set(MAKERS) - NO_MAKER


def test_text_is_outside_but_for_is_null() -> None:
    text = Column(VARCHAR, "s")
    assert to_kernel_source(resolve("=", (text, Literal(VARCHAR, "a"))), {"s": "s"}) is None
    assert to_kernel_source(Literal(VARCHAR, "a"), {}) is None
    null = to_kernel_source(resolve("is_null", (text,)), {"s": "s"})
    assert null is not None
    assert (null.value, null.null, null.valid) == ("n_s", "False", "True")


def test_a_column_without_a_name_is_outside() -> None:
    assert to_kernel_source(Column(BIGINT, "a"), {"b": "b"}) is None


def test_an_expression_too_long_for_a_kernel_is_outside() -> None:
    """Text that doubles with each level must not be built to its end."""
    expr: Expr = Column(DOUBLE, "x0")
    for _ in range(40):
        expr = resolve("/", (Column(DOUBLE, "x0"), resolve("greatest", (expr, Column(DOUBLE, "x0")))))
    assert source_of(expr, schema_of([DOUBLE])) is None


@pytest.mark.parametrize(
    "a,b",
    [
        (2**63 - 1, 1), (2**63 - 1, -1), (-(2**63), 1), (-(2**63), -1), (2**32, 2**31), (-(2**32), 2**31),
        (2**32, -(2**31)),
        (3037000499, 3037000500), (3037000500, 3037000500), (-3037000500, 3037000500), (-(2**62), 2), (2**62, 2),
        (2**62, -2), (7, 1317624576693539401), (-7, 1317624576693539402), (0, -(2**63)), (2**61, -4), (2**61, 4),
    ],
)  # fmt: skip
def test_products_near_the_limits(a: int, b: int) -> None:
    for x, y in ((a, b), (b, a)):
        if -(2**63) <= x * y < 2**63:
            assert HELPERS["k_multiply"](x, y) == x * y
        else:
            with pytest.raises(OverflowError):
                HELPERS["k_multiply"](x, y)


def test_compiled_source_gives_the_same() -> None:
    """One loop over expressions of every kind, compiled from text alone."""
    numba = pytest.importorskip("numba")
    types = [BIGINT, DOUBLE, BOOLEAN, TIMESTAMP, DOUBLE]
    schema, rows = schema_of(types), rows_of(types)
    i, f, b, t, g = (Column(type_, f"x{k}") for k, type_ in enumerate(types))
    small, week, one = resolve("%", (i, Literal(BIGINT, 1000))), Literal(VARCHAR, "week"), Literal(DOUBLE, 1.0)
    exprs = [
        resolve("*", (resolve("+", (small, Literal(INTEGER, 3))), small)),
        resolve("/", (f, resolve("-", (g, resolve("/", (g, f)))))),
        resolve("//", (i, Literal(BIGINT, -7))),
        resolve("and", (b, resolve("<", (f, resolve("%", (f, g)))))),
        resolve("in", (small, Literal(BIGINT, 1), Literal(BIGINT, 2), Literal(NULL, None))),
        case(((resolve(">", (f, one)), resolve("/", (f, g))), (b, f)), resolve("neg", (g,))),
        resolve("greatest", (resolve("/", (f, g)), g)),
        resolve("coalesce", (resolve("/", (g, f)), one)),
        resolve("coalesce", (resolve("/", (g, f)), resolve("nullif", (f, g)))),
        resolve("year", (resolve("date_trunc", (week, t)),)),
        resolve("round", (f, Literal(INTEGER, 2))),
        cast(resolve("sqrt", (f,)), BIGINT, safe=True),
    ]
    kernels = [kernel for expr in exprs if (kernel := source_of(expr, schema))]
    assert len(kernels) == len(exprs)
    lines = [f"{kind}_c{k} = {kind.upper()}{k}[i]" for k in range(len(types)) for kind in "vn"]
    for k, kernel in enumerate(kernels):
        lines += [f"m{k}[i] = {kernel.null}", f"if not m{k}[i]:", f"    r{k}[i] = {kernel.value}"]
    names = [f"{kind}{k}" for k in range(len(types)) for kind in "VN"]
    names += [f"{kind}{k}" for k in range(len(kernels)) for kind in "rm"]
    helpers = {name for kernel in kernels for name in kernel.helpers}
    body = "\n".join("        " + line for line in lines)
    head = f"def loop({', '.join(names)}):\n    for i in range(len(V0)):\n"
    source = f"import numpy as np\n{helper_source(helpers)}\n{head}{body}"
    namespace: dict[str, object] = {}
    exec(compile(source, "<kernel>", "exec"), namespace)
    namespace |= {name: numba.njit(namespace[name]) for name in helpers}
    results = [(np.zeros(rows.num_rows, k.type.kernel), np.zeros(rows.num_rows, bool)) for k in kernels]
    numba.njit(namespace["loop"])(*columns(rows, schema), *(array for pair in results for array in pair))
    expected = compile_arrow(exprs, schema)(rows)
    for expr, kernel, (values, nulls), theirs in zip(exprs, kernels, results, expected, strict=True):
        assert same(from_kernel(values, ~nulls, kernel.type), theirs, is_exact(expr)), f"{expr}: {kernel}"


def test_null_comes_before_value() -> None:
    """Where a divisor is zero the value must not be computed, and the text says so."""
    kernel = to_kernel_source(resolve("/", (Column(DOUBLE, "a"), Column(DOUBLE, "b"))), {"a": "a", "b": "b"})
    assert kernel is not None
    assert eval(kernel.null, {"n_a": False, "n_b": False, "v_a": 1.0, "v_b": 0.0})
    assert not eval(kernel.null, {"n_a": False, "n_b": False, "v_a": 1.0, "v_b": 2.0})
    assert eval(kernel.value, {"v_a": 1.0, "v_b": 2.0}) == 0.5
