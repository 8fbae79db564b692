"""Failures on command: threads, kills, damage, disks that are full. The programs here run as long as asked."""
