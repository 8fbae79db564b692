"""The dialect needs a sqlglot that can be subclassed, and says so; importing it costs little more than sqlglot."""

import subprocess
import sys

import pytest

from millstream.errors import EngineError
from millstream.sql.compat import require_pure_sqlglot


class Compiled:
    """Refuses subclasses as compiled classes do."""

    def __init_subclass__(cls) -> None:
        raise TypeError("interpreted classes cannot inherit from compiled")


def test_a_compiled_sqlglot_is_named_as_the_reason() -> None:
    with pytest.raises(EngineError) as caught:
        require_pure_sqlglot(Compiled)
    assert "compiled" in caught.value.message and "pip" in (caught.value.hint or "")


def test_the_installed_sqlglot_is_fine() -> None:
    require_pure_sqlglot()


def test_importing_loads_no_other_engine() -> None:
    code = (
        "import sys, millstream.sql; "
        "print([m for m in ('pyspark', 'duckdb', 'numba', 'pandas', 'sqlglot.dialects.duckdb') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
