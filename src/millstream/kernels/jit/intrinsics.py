"""Operations that compiled kernels have and Python lacks; imported by compiled kernel modules alone."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

COMPILED = True


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask the processor to bring `array[index]` near; the index may lie anywhere, nothing is read."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = make_array(signature.args[0])(context, builder, args[0]).data
        byte_pointer = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte_pointer, flag, flag, flag]), "llvm.prefetch.p0"
        )
        address = builder.bitcast(builder.gep(data, [args[1]]), byte_pointer)
        for_writing, keep_near, is_data = (ir.Constant(flag, value) for value in (1, 3, 1))
        builder.call(function, [address, for_writing, keep_near, is_data])
        return context.get_dummy_value()

    return types.void(array, index), generate


@intrinsic  # type: ignore[untyped-decorator]
def load_word(typing_context: Any, data: Any, index: Any) -> Any:
    """Eight bytes from `data[index]` on as an integer, the first one lowest; the caller knows that they are there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = make_array(signature.args[0])(context, builder, args[0]).data
        word = ir.IntType(64)
        return builder.load(builder.bitcast(builder.gep(start, [args[1]]), word.as_pointer()), align=1)

    return types.int64(data, index), generate
