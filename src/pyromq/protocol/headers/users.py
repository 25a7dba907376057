"""Headers of the requests for users and policies of 5.x."""

from __future__ import annotations

from ..header import Header


class UserName(Header):
    """3001 to 3004"""

    username: str = ""


class ListUsers(Header):
    """3005: those whose names contain `filter`."""

    filter: str | None = None


class AclSubject(Header):
    """3006, 3007, 3009"""

    subject: str = ""


class DeleteAcl(Header):
    """3008: of the whole subject, or of one resource."""

    subject: str = ""
    policy_type: str | None = None
    resource: str | None = None


class ListAcls(Header):
    """3010: those whose subjects and resources contain these texts."""

    subject_filter: str | None = None
    resource_filter: str | None = None
