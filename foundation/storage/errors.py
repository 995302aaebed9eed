"""What storage raises besides PostgreSQL's own errors."""


class Unavailable(Exception):
    """The database cannot be reached, is starting or stopping, lacks resources, or rolled back a
    transaction that may be repeated as it is. The original error is the cause.

    Services map it to UNAVAILABLE: the caller may repeat its request.
    """


class CommitUnknown(Unavailable):
    """The connection was lost while COMMIT was on its way: it may have happened.

    Repeat the same write with the same ids, or read, before believing either.
    """


class ConfigurationError(Exception):
    """A setting, key file or folder is not as it must be. The text says which, and what to do."""


class SealBroken(Exception):
    """A sealed value does not open: changed, moved to another row, or sealed with an unknown key.

    Never carries content.
    """
