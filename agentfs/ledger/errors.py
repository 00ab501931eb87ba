"""What can go wrong with the ledger, in words for a person. Pure."""


class LedgerError(Exception):
    """The ledger could not do what was asked; the files of the run are unharmed."""


class LedgerBusy(LedgerError):
    """Somebody else holds a lock: try again later, nothing was changed."""


class LedgerBroken(LedgerError):
    """The repository cannot be used until a person mends it; the words say how."""
