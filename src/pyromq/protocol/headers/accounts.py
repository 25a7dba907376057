"""Headers of the requests about accounts of RocketMQ 4.x (50 to 54), and users and policies of 5.x (3001 to 3010)."""

from __future__ import annotations

from ..header import Header

# 4.x. What is None in a change stays as it was.


class UpdateAclConfig(Header):
    """50. Lists are apart by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAclConfig(Header):
    """51"""

    access_key: str


class GetAclInfoReply(Header):
    """To 52. The versions are JSON. `file_errors` is ours: why a file is not in effect as it is, by its path."""

    broker_name: str = ""
    broker_addr: str = ""
    cluster_name: str = ""
    version: str = ""
    all_acl_file_version: str = ""
    file_errors: str | None = None


class UpdateGlobalWhiteAddresses(Header):
    """53. The addresses are apart by commas."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


# 5.x


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
