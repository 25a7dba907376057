"""The admin client: what operators and their tools do, as coroutines (docs/spec/client.md 5)."""

from pyromq.protocol.bodies import AclInfo as Acl
from pyromq.protocol.bodies import PolicyEntryInfo as PolicyEntry
from pyromq.protocol.bodies import PolicyInfo as Policy
from pyromq.protocol.bodies import UserInfo as User

from .acl import Account, AclAdmin, AclVersion
from .admin_client import AdminClient
from .brokers import BrokerAdmin
from .clients import ClientAdmin
from .controllers import ControllerAdmin, ControllerView, Elected
from .groups import GroupAdmin
from .messages import MessageAdmin
from .name_servers import NameServerAdmin
from .offsets import OffsetAdmin, ResetResult
from .progress import GroupProgress, QueueProgress
from .topics import TopicAdmin
from .tracks import MessageTrack, TrackState

__all__ = [
    "Account",
    "Acl",
    "AclAdmin",
    "AclVersion",
    "AdminClient",
    "BrokerAdmin",
    "ClientAdmin",
    "ControllerAdmin",
    "ControllerView",
    "Elected",
    "GroupAdmin",
    "GroupProgress",
    "MessageAdmin",
    "MessageTrack",
    "NameServerAdmin",
    "OffsetAdmin",
    "Policy",
    "PolicyEntry",
    "QueueProgress",
    "ResetResult",
    "TopicAdmin",
    "TrackState",
    "User",
]
