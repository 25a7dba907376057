"""Users and policies: the access control of RocketMQ 5 (docs/spec/admin.md 5.2).

model.py            users, policies, and which entry decides
changes.py          what requests make of them
conversion.py       users and policies as requests carry them
directory.py        all of them, kept in a file: users_file.py, with secrets encrypted by vault.py
user_authority.py   decides on requests
requests.py         serves 3001 to 3010
config.py           settings
"""

from .config import UsersConfig, check_users
from .user_authority import UserAuthority

__all__ = ["UserAuthority", "UsersConfig", "check_users"]
