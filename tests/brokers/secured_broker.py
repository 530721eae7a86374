"""A Kafka broker with a listener for every kind of security, and the settings to log in to each.

One broker process serves all: a plain listener for the tests' own writing, TLS with good and bad
certificates, SASL with every mechanism, and one listener that requires a new login every two
seconds.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import scramp

from rangeland.cluster_settings import ClusterSettings, TlsSettings
from rangeland.model import Address
from rangeland.testing.client_library import admin, library
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.processes import Process
from rangeland.testing.zookeeper import Visitor
from tests.brokers.reading import settings_of
from tests.certificates import Authority

USER, PASSWORD = "lander", "s3cret, of=lander"
ODD_USER, ODD_PASSWORD = "a=b,c", "\ufb01n \u00bd\u00e9"
"""A name that SCRAM has to write in another way, and letters that other protocols would fold."""
REAUTH_MS = 2_000
_MODULES = "org.apache.kafka.common.security"
_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
_SUPER = ("ANONYMOUS", USER, ODD_USER, "CN=client", "CN=locked")

LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "MUTUAL12": "SSL",
    "MISNAMED": "SSL",
    "EXPIRED": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "SCRAM": "SASL_PLAINTEXT",
    "AGAIN": "SASL_PLAINTEXT",
}


class SecuredCluster(KafkaCluster):
    """``authority`` is that of all its certificates. A superuser is who comes in plain."""

    def __init__(self, folder: Path, authority: Authority, **more: Any) -> None:
        self.folder = folder
        self.authority = authority
        self.listeners: dict[str, int] = {}
        super().__init__(**more)

    def at(self, listener: str) -> Address:
        return Address("127.0.0.1", self.listeners[listener])

    def settings(self, listener: str, **changed: Any) -> ClusterSettings:
        """Settings for one listener; ``tls=True`` trusts the authority."""
        if changed.get("tls") is True:
            changed["tls"] = TlsSettings(ca=str(self.authority.ca))
        return settings_of([str(self.at(listener))], **changed)

    def _write_config(self, node: int, settings: Mapping[str, object]) -> None:
        ports = free_ports(len(LISTENERS))
        self.listeners = dict(zip(LISTENERS, ports, strict=True))
        every = ",".join(f"{n}://127.0.0.1:{p}" for n, p in self.listeners.items())
        kinds = ",".join(f"{n}:{kind}" for n, kind in LISTENERS.items())
        extra: dict[str, object] = {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{kinds}",
            "listeners": f"{settings['listeners']},{every}",
            "advertised.listeners": f"{settings['advertised.listeners']},{every}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in _SUPER),
            **self._certificates(),
            **self._logins(),
        }
        super()._write_config(node, {**settings, **extra})

    def _certificates(self) -> dict[str, object]:
        good = self.authority.issue("broker").both
        stores = {
            "TLS": good,
            "SASLTLS": good,
            "MUTUAL": good,
            "MUTUAL12": good,
            "MISNAMED": self.authority.issue("elsewhere", ["elsewhere.example"]).both,
            "EXPIRED": self.authority.issue("late", days_ago=30).both,
        }
        found: dict[str, object] = {}
        for name, store in stores.items():
            start = f"listener.name.{name.lower()}.ssl"
            found |= {
                f"{start}.keystore.type": "PEM",
                f"{start}.keystore.location": store,
                f"{start}.truststore.type": "PEM",
                f"{start}.truststore.location": self.authority.ca,
            }
            if name.startswith("MUTUAL"):
                found[f"{start}.client.auth"] = "required"
        found["listener.name.mutual12.ssl.enabled.protocols"] = "TLSv1.2"
        return found

    def _logins(self) -> dict[str, object]:
        plain = f"{_MODULES}.plain.PlainLoginModule required"
        users = f'user_{USER}="{PASSWORD}" user_nobody="{PASSWORD}"'
        logins = {
            "plain": f"{plain} {users};",
            "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
            "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
        }
        found: dict[str, object] = {"sasl.enabled.mechanisms": _MECHANISMS}
        for name, kind in LISTENERS.items():
            if not kind.startswith("SASL"):
                continue
            for mechanism, login in logins.items():
                found[f"listener.name.{name.lower()}.{mechanism}.sasl.jaas.config"] = login
                if name == "AGAIN":
                    again = f"listener.name.again.{mechanism}.connections.max.reauth.ms"
                    found[again] = REAUTH_MS
        found["listener.name.scram.sasl.enabled.mechanisms"] = "SCRAM-SHA-256,SCRAM-SHA-512"
        return found

    def add_users(self) -> None:
        """Names and passwords for SCRAM; those for PLAIN stand in the configuration."""
        kafka = library("confluent_kafka.admin")
        wanted = [
            kafka.UserScramCredentialUpsertion(
                user,
                kafka.ScramCredentialInfo(getattr(kafka.ScramMechanism, mechanism), 4096),
                password.encode(),
            )
            for mechanism in ("SCRAM_SHA_256", "SCRAM_SHA_512")
            for user, password in ((USER, PASSWORD), (ODD_USER, ODD_PASSWORD))
        ]
        client = admin(self.bootstrap)
        for one in wanted:
            for done in client.alter_user_scram_credentials([one]).values():
                done.result()

    def allow(self, user: str, topic: str, operation: str) -> None:
        """One right of one user to one topic."""
        client = admin(self.bootstrap)  # kept by a name: without it, it would end too soon
        for done in client.create_acls([self._rule(user, topic, operation)]).values():
            done.result()
        time.sleep(0.3)  # until the broker has replayed it

    def forbid(self, user: str, topic: str) -> None:
        """Takes all rights of one user to one topic back."""
        kafka = library("confluent_kafka.admin")
        client = admin(self.bootstrap)
        wanted = self._rule(user, topic, "ANY", kafka.AclBindingFilter)
        for done in client.delete_acls([wanted]).values():
            done.result()
        time.sleep(0.3)

    def _rule(self, user: str, topic: str, operation: str, kind: Any = None) -> Any:
        kafka = library("confluent_kafka.admin")
        permission = "ANY" if operation == "ANY" else "ALLOW"
        return (kind or kafka.AclBinding)(
            kafka.ResourceType.TOPIC,
            topic,
            kafka.ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            getattr(kafka.AclOperation, operation),
            getattr(kafka.AclPermissionType, permission),
        )


class SecuredOldCluster(KafkaZooKeeperCluster):
    """Kafka 0.11, with a second listener that wants SASL and takes tokens in bare frames."""

    def __init__(self, **more: Any) -> None:
        self.secured = ""
        super().__init__(**more)

    def _write_config(self, node: int, settings: Mapping[str, object]) -> None:
        (port,) = free_ports(1)
        self.secured = f"127.0.0.1:{port}"
        extra: dict[str, object] = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        for name in ("listeners", "advertised.listeners"):
            extra[name] = f"{settings[name]},SASL://{self.secured}"
        super()._write_config(node, {**settings, **extra})

    def _java(self, name: str, heap_mb: int, *arguments: str) -> Process:
        """A broker this old is told who may enter by a file that its JVM is given."""
        text = (
            f'KafkaServer {{ {_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            f" {_MODULES}.scram.ScramLoginModule required; }};"
        )
        jaas = self.directory / "jaas.conf"
        jaas.write_text(text)
        option = f"-Djava.security.auth.login.config={jaas}"
        return super()._java(name, heap_mb, *([option] if name != "zookeeper" else []), *arguments)

    def add_users(self) -> None:
        """Names and passwords for SCRAM, as the brokers' own tool leaves them in ZooKeeper."""
        settings = {}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            made = scramp.ScramMechanism(mechanism).make_auth_info(PASSWORD)
            salt, stored_key, server_key = (base64.b64encode(x).decode() for x in made[:3])
            settings[mechanism] = (
                f"salt={salt},stored_key={stored_key},server_key={server_key},iterations=4096"
            )
        content = {"version": 1, "config": settings}
        change = {"version": 2, "entity_path": f"users/{USER}"}
        with Visitor(self.zookeeper) as keeper:
            keeper.create(f"/config/users/{USER}", json.dumps(content).encode(), makepath=True)
            start = "/config/changes/config_change_"
            keeper.create(start, json.dumps(change).encode(), makepath=True, sequence=True)
        time.sleep(0.5)  # until the broker has read it


def unsecured_token(subject: str = USER, lifetime_s: float = 3600) -> str:
    """A JWS without a signature, as a broker takes it that is set up for tests."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + lifetime_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts), ""])
