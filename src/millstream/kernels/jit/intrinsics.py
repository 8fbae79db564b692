"""Operations that compiled kernels have and Python lacks; imported by compiled kernel modules alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
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


@register_jitable  # type: ignore[untyped-decorator]
def place(index: Any) -> Any:
    """An index that is not negative: whether it counts from the end is not asked."""
    return np.uint64(index)


def _checked(operation: str) -> Any:
    """The result of an operation on two integers, and whether it fits 64 bits; if not, the result is anything."""

    @intrinsic  # type: ignore[untyped-decorator]
    def checked(typing_context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            both = getattr(builder, operation)(*args)
            parts = [builder.extract_value(both, 0), builder.not_(builder.extract_value(both, 1))]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.Tuple((types.int64, types.boolean))(types.int64, types.int64), generate

    return checked


total, difference, product = map(_checked, ("sadd_with_overflow", "ssub_with_overflow", "smul_with_overflow"))


@intrinsic  # type: ignore[untyped-decorator]
def remainder(typing_context: Any, a: Any, b: Any) -> Any:
    """What a division towards zero leaves, with the sign of a; b is neither 0 nor -1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.srem(*args)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def load_word(typing_context: Any, data: Any, index: Any) -> Any:
    """Eight bytes from `data[index]` on as an integer, the first one lowest; the caller knows that they are there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = make_array(signature.args[0])(context, builder, args[0]).data
        word = ir.IntType(64)
        return builder.load(builder.bitcast(builder.gep(start, [args[1]]), word.as_pointer()), align=1)

    return types.int64(data, index), generate


@intrinsic  # type: ignore[untyped-decorator]
def turned(typing_context: Any, word: Any) -> Any:
    """The bytes of a word in the opposite order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(*args)

    return types.int64(types.int64), generate
