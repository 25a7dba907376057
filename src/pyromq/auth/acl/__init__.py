"""Access control as in RocketMQ 4.x: accounts in YAML files, with rights to publish and subscribe.

`addresses` knows patterns of addresses, `yaml_text` a careful subset of YAML, `files` what stands in one file, `folder`
all files of a server, how they change and are followed; `plain_acl` decides on requests.
"""

from .plain_acl import PlainAcl

__all__ = ["PlainAcl"]
