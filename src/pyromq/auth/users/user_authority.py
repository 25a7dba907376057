"""Decides by users and policies: RocketMQ 5's access control.

The answer to who and what is a few microseconds away: users are looked up in a dict, and what was allowed once is
remembered until a user or a policy changes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.protocol.rights import Need, ResourceKind
from pyromq.remoting import Admin, is_signed_by, split_address
from pyromq.remoting.acl import ACCESS_KEY

from ..authority import Refused
from ..config import account_file, inner_credentials
from .config import UsersConfig, check_users, codes_in, initial_user
from .directory import UserDirectory
from .migration import with_accounts_of
from .model import Decision, User, UserType, address_of, deciding
from .users_file import UsersFile
from .vault import Vault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.remoting import Rule
    from pyromq.settings import Settings

    from .model import Accounts, Policies

FILE, KEY_FILE = "users.json", "users.key"
# Decisions that are remembered. Past that they are all forgotten: somebody has rights on very many topics.
REMEMBERED = 20_000


class UserAuthority:
    """An `Authority` over the users of a directory.

    `cluster` is the name of the server's cluster, which policies may name. A name server, which has `only_changes`, is
    open to everybody but for requests that need an administrator, as those of RocketMQ are for all of them.
    """

    def __init__(
        self,
        config: UsersConfig,
        directory: UserDirectory,
        cluster: str,
        *,
        only_changes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self._authorizes = config.authorization
        self._cluster = cluster
        self._only_changes = only_changes
        self._migrates: Path | None = None
        self._without_signature = codes_in(config.authentication_whitelist)
        self._without_rights = codes_in(config.authorization_whitelist)
        self._proofs = _Proofs(config.stateful_seconds, config.stateful_most, clock) if config.is_stateful else None
        self._users: Mapping[str, User] = {}
        # Who may do what: accounts with all the needs of a request, and the host if their policies ask for that.
        self._allowed: set[tuple[str, tuple[Need, ...], str]] = set()
        self._asked_where: frozenset[str] = frozenset()
        directory.changed = self._forget
        self._forget()

    @classmethod
    def of(cls, settings: Settings, home: Path, *, only_changes: bool = False) -> UserAuthority:
        """The authority of a server whose own files are in `home`; `load` comes next. ConfigError if it cannot work."""
        check_users(settings)
        config = settings[UsersConfig]
        folder = Path(config.folder) if config.folder else home / "config"
        vault = Vault(Path(config.key_file) if config.key_file else folder / KEY_FILE)
        givens = [user for user in (initial_user(settings), _inner_user(settings)) if user is not None]
        # Only brokers are asked to change users.
        owns_file = settings.value("storePathRootDir") is not None
        directory = UserDirectory(UsersFile(folder / FILE, vault), givens, owns_file=owns_file)
        made = cls(config, directory, settings.value("brokerClusterName") or "", only_changes=only_changes)
        if config.migrate:
            made._migrates = account_file(settings, home)
        return made

    def load(self) -> None:
        """Read the users. Blocking. ConfigError if they cannot be."""
        self.directory.load(self._migrated)

    def _migrated(self, accounts: Accounts) -> Accounts:
        return accounts if self._migrates is None else with_accounts_of(self._migrates, accounts)

    def look_now(self) -> None:
        """Somebody says that the file has changed."""
        self.directory.look_now()

    async def run(self) -> None:
        """Follow changes of the file, until cancelled."""
        try:
            await self.directory.run()
        finally:
            await self.directory.close()

    # Who

    def identify(self, request: Command, address: str, rule: Rule) -> str | None:
        if not rule.needs.signed or (self._only_changes and rule.admin is Admin.NEVER):
            return None
        ext = request.ext
        name = ext.get(ACCESS_KEY) if ext else None
        user = self._users.get(name) if name else None
        if user is not None and user.is_enabled and self._is_proven(user, request, address):
            return name
        if request.code in self._without_signature:
            return None  # whoever they say they are
        if not name:
            raise Refused("username cannot be null.")
        if user is None:
            raise Refused(f"User:{name} is not found.", account=name)
        if not user.is_enabled:
            raise Refused(f"User:{name} is disabled.", account=name)
        raise Refused("check signature failed.", account=name)

    def is_super(self, request: Command, address: str) -> bool:
        """Whether a super user signed this."""
        user = self._users.get((request.ext or {}).get(ACCESS_KEY, ""))
        return user is not None and user.is_super and user.is_enabled and self._is_proven(user, request, address)

    def _is_proven(self, user: User, request: Command, address: str) -> bool:
        proofs = self._proofs
        if proofs is None:
            return is_signed_by(request, user.secret)
        if proofs.has(address, user.name):
            return True
        if not is_signed_by(request, user.secret):
            return False
        proofs.add(address, user.name)
        return True

    # What

    def allow(self, account: str | None, needs: Iterable[Need], address: str, rule: Rule, code: int) -> None:
        if not self._authorizes:
            return
        needs = tuple(needs)
        if not needs or code in self._without_rights or (self._only_changes and rule.admin is Admin.NEVER):
            return
        if account is None:
            raise Refused("Authorization failed. Please verify your access rights and try again.")
        host = _host(address) if account in self._asked_where else ""
        known = (account, needs, host)
        if known in self._allowed:
            return
        self._decide(account, needs, address)
        if len(self._allowed) >= REMEMBERED:
            self._allowed.clear()
        self._allowed.add(known)

    def _decide(self, account: str, needs: tuple[Need, ...], address: str) -> None:
        user = self._users.get(account)
        # Either may have changed since they were identified: a large body takes its time.
        if user is None:
            raise Refused(f"User:{account} not found.", account=account)
        if not user.is_enabled:
            raise Refused(f"User:{account} is disabled.", account=account)
        if user.is_super:
            return
        policies: Policies = self.directory.accounts.policies.get(account, {})
        host = address_of(_host(address))
        for need in needs:
            if need.kind is ResourceKind.CLUSTER:
                need = need._replace(name=self._cluster)
            entry = deciding(policies, need, host)
            if entry is None or entry.decision is Decision.DENY:
                why = "no matched policies." if entry is None else "the decision is deny."
                raise Refused(
                    f"User:{account} has no permission to access {need.kind}:{need.name} from {_host(address)}, {why}",
                    account=account,
                )

    def secret_of(self, account: str) -> str | None:
        user = self._users.get(account)
        return user.secret if user is not None and user.is_enabled else None

    @property
    def state(self) -> object:
        return self._state

    def _forget(self) -> None:
        """Something changed: nothing that was decided before counts."""
        self._state = object()
        accounts = self.directory.accounts
        self._users = accounts.users
        self._allowed.clear()
        self._asked_where = frozenset(
            name
            for name, policies in accounts.policies.items()
            if any(entry.sources for entries in policies.values() for entry in entries)
        )
        if self._proofs is not None:
            self._proofs.clear()


class _Proofs:
    """Connections whose users have proven who they are (StatefulAuthenticationStrategy).

    A connection is told by its address, and not by what that says: the next connection may come from the same port.
    It keeps one text for its address all the time, so it is the same one as long as that is the same object.
    """

    def __init__(self, seconds: float, most: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        # With the text itself, so that no other object gets its id meanwhile.
        self._until: dict[tuple[int, str], tuple[str, float]] = {}

    def has(self, address: str, name: str) -> bool:
        found = self._until.get((id(address), name))
        return found is not None and found[1] > self._clock()

    def add(self, address: str, name: str) -> None:
        self._until.pop((id(address), name), None)
        while len(self._until) >= self._most:
            del self._until[next(iter(self._until))]
        self._until[id(address), name] = (address, self._clock() + self._seconds)

    def clear(self) -> None:
        self._until.clear()


def _host(address: str) -> str:
    try:
        return split_address(address)[0]
    except ValueError:
        return address


def _inner_user(settings: Settings) -> User | None:
    """The account by which servers sign what they ask of each other: all of them have it."""
    found = inner_credentials(settings)
    return None if found is None else User(found.access_key, found.secret_key, UserType.SUPER)
