"""Who may do what: accounts, rights, and the one place where every request is decided on."""

from .authority import Anyone, Authority, Refused
from .guard import RequestGuard

__all__ = ["Anyone", "Authority", "Refused", "RequestGuard"]
