"""Permission bits of topics and brokers."""

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
PERM_READ_WRITE = PERM_READ | PERM_WRITE


def perm_text(perm: int) -> str:
    """As RocketMQ prints it: `RW-`."""
    return "".join(
        letter if perm & bit else "-" for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
