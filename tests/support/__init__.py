"""What tests have in common: random generators, second opinions and golden plans."""
