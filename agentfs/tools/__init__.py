"""What steps call."""
