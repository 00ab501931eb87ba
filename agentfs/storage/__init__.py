"""What every layer above needs of files on disk."""
