"""What people see. Views read state and write text; nothing ever reads a view back."""
