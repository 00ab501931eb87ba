"""What people see. The interface reads state and writes text; nothing ever reads it back."""
