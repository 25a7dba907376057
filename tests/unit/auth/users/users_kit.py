"""Users, policies and signed requests for tests."""

from __future__ import annotations

from pyromq.auth.users import UserAuthority, UsersConfig
from pyromq.auth.users.changes import with_policies, with_user
from pyromq.auth.users.conversion import policies_of
from pyromq.auth.users.directory import UserDirectory
from pyromq.auth.users.model import Accounts, User, UserStatus, UserType
from pyromq.auth.users.users_file import UsersFile
from pyromq.auth.users.vault import Vault
from pyromq.protocol.bodies import PolicyEntryInfo, PolicyInfo
from pyromq.protocol.command import Command
from pyromq.remoting import SigningHook

PEER = "10.1.2.3:4567"
SECRETS = {"root": "root-secret", "alice": "alice-secret", "bob": "bob-secret", "gone": "gone-secret"}


def entry(resource, actions="All", decision="Allow", sources=()):
    return PolicyEntryInfo(resource=resource, actions=actions.split(","), decision=decision, source_ips=list(sources))


def policies(*entries, default=()):
    kinds = {"Custom": entries, "Default": default}
    return policies_of(PolicyInfo(policy_type=kind, entries=list(each)) for kind, each in kinds.items() if each)


def accounts(**rights):
    """root may do everything, gone is disabled, and the others have these policies."""
    found = with_user(Accounts(), User("root", SECRETS["root"], UserType.SUPER))
    found = with_user(found, User("gone", SECRETS["gone"], UserType.SUPER, UserStatus.DISABLE))
    for name in ("alice", "bob"):
        found = with_user(found, User(name, SECRETS[name]))
        if name in rights:
            found = with_policies(found, name, rights[name])
    return found


def directory(folder, given=None, **rights):
    file = UsersFile(folder / "users.json", Vault(folder / "users.key"))
    file.save(given or accounts(**rights))
    return UserDirectory(file)


def authority(folder, clock=None, config=None, only_changes=False, **rights):
    made = UserAuthority(
        config or UsersConfig(authentication=True, authorization=True),
        directory(folder, **rights),
        "DefaultCluster",
        only_changes=only_changes,
        **({} if clock is None else {"clock": clock}),
    )
    made.load()
    return made


def signed(name, code=310, body=None, secret=None, **ext):
    request = Command(code, ext=dict(ext), body=body)
    SigningHook(name, secret or SECRETS.get(name, "some-secret")).before_request(PEER, request)
    return request
