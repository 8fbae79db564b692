"""What a plan costs, by what was measured of its streams."""
