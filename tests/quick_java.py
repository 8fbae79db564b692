"""How tests start Java."""

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds spends most of its time compiling; the quick compiler is enough."""
