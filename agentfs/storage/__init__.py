"""Files on disk: how they are opened, written once, locked and watched."""
