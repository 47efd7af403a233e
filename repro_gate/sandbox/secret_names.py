"""Which environment variables hold, or lead to, something that the training must not have: by their
names alone. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|COOKIE|AUTH", re.IGNORECASE
)

# Beside these: personal access tokens, data source names, keys and passwords by the ends of names,
# and services' addresses, in which passwords stand.
_ENDS = re.compile(
    r"_(?:PAT|DSN|PWD|PASS|KEY)$|PASSPHRASE|CONNECTION_?STRING|WEBHOOK"
    r"|(?:^|_)(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|RABBITMQ|BROKER)_UR[IL]$",
    re.IGNORECASE,
)
_PUBLIC = ("GPG_KEY",)  # in images of Python: whose signature its source has

# Not secrets by themselves, or named by the above and on every laptop: taken out where there is
# something to take out, never the reason to.
_LEADS_THERE = re.compile(
    "SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|XAUTHORITY|ICEAUTHORITY|DBUS_SESSION_BUS_ADDRESS|DOCKER_HOST|DOCKER_CONFIG|DOCKER_CERT_PATH"
    "|KUBECONFIG|NETRC|PGPASSFILE|ACTIONS_CACHE_URL|ACTIONS_RESULTS_URL|ACTIONS_RUNTIME_URL|GITHUB_ENV|GITHUB_PATH|GITHUB_STATE"
    "|GIT_ASKPASS|SSH_ASKPASS|SUDO_ASKPASS"
)
_PREFIXES = ("AWS_", "AZURE_", "ARM_CLIENT_", "GIT_CONFIG_VALUE_", "GIT_CONFIG_PARAMETERS")


def secret_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those that are secrets: the reason for a gate to re-execute itself without them. Sorted."""
    return tuple(sorted(name for name in names if _is_secret(name)))


def taken_out(names: Iterable[str]) -> tuple[str, ...]:
    """Everything that goes when a gate re-executes itself: secrets, and what only leads to them.
    Sorted."""
    return tuple(sorted(name for name in names if _LEADS_THERE.fullmatch(name) or _is_secret(name)))


def _is_secret(name: str) -> bool:
    if _LEADS_THERE.fullmatch(name) or name in _PUBLIC:
        return False
    return (
        name.startswith(_PREFIXES)
        or SECRET.search(name) is not None
        or _ENDS.search(name) is not None
    )
