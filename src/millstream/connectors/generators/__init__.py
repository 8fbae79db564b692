"""Generated streams: seeded, the same rows whatever the chunks, made column by column."""
