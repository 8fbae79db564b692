"""Keys as numbers: dense slots for compiled loops, stable buckets for dividing state."""

from millstream.kernels.keys.buckets import bucket_of
from millstream.kernels.keys.index import Slots
from millstream.kernels.keys.table import KeyTable
from millstream.kernels.keys.tables import ByteTable

__all__ = ["ByteTable", "KeyTable", "Slots", "bucket_of"]
