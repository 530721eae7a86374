"""The `source.security` section of a job file: TLS, and the identity of this client.

A secret is only ever given as a reference (``${env:NAME}``, ``${file:PATH}``). It is looked up when
a connection needs it, and never appears in a plan, the ledger or a message.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from rangeland.job.secret_references import SecretRef
from rangeland.job.section import MisplacedKey, Section
from rangeland.job.text_patterns import FUNCTION_NAME, HTTP_URL, SERVICE_NAME, ZOOKEEPER_USER

# Which keys a mechanism needs, and which it cannot use.
_NAMED = (("username", "password"), ("token", "extensions", "kerberos"))
_BY_MECHANISM = {
    "OAUTHBEARER": (("token",), ("username", "password", "kerberos")),
    "GSSAPI": ((), ("username", "password", "token", "extensions")),
}


class Tls(Section):
    """TLS to brokers; `true` if trusting the system's certificate authorities is enough."""

    ca: str | None = Field(
        default=None,
        description="PEM file with the certificate authorities to trust; by default those of the "
        "system.",
    )
    certificate: str | None = Field(
        default=None, description="PEM file with this client's certificate, for mutual TLS."
    )
    key: str | None = Field(
        default=None,
        description="PEM file with the certificate's private key, if it is in another file.",
    )
    key_password: SecretRef | None = Field(
        default=None, description="The password of the key, if it is encrypted."
    )
    verify_hostname: bool = Field(
        default=True, description="Whether the server's certificate must name its host."
    )


class Token(Section):
    """The source of the token of OAUTHBEARER: one of command, file, callable, endpoint. A new one
    is fetched for each login, wherever a connection is made: on the driver and on executors."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [n]} for n in ("command", "file", "callable", "endpoint")]
        }
    )

    command: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["/opt/bin/kafka-token", "--audience", "kafka"]]},
        description="A program and its arguments, run without a shell; its stdout is the token. "
        "It must end within `timeouts.request_ms`. Exit code 75 means: try again later.",
    )
    file: str | None = Field(
        default=None,
        description="A file with the token, which another program keeps up to date.",
    )
    callable: str | None = Field(
        default=None,
        pattern=FUNCTION_NAME,
        json_schema_extra={"examples": ["my_module:kafka_token"]},
        description="A Python function without arguments that returns the token.",
    )
    endpoint: str | None = Field(
        default=None,
        repr=False,
        pattern=HTTP_URL,
        json_schema_extra={"examples": ["https://login.example/oauth2/token"]},
        description="The token endpoint of an OAuth 2 server, called with the client credentials "
        "grant. `http` is only allowed to this host.",
    )
    client_id: str | None = Field(default=None, description="The client id for the endpoint.")
    client_secret: SecretRef | None = Field(
        default=None, description="The client secret for the endpoint; looked up in the driver."
    )
    scope: str | None = Field(default=None, description="The scope to request.")
    ca: str | None = Field(
        default=None,
        description="PEM file with the certificate authorities to trust for the endpoint; by "
        "default those of the system.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Token:
        keys = ("command", "file", "callable", "endpoint")
        sources = [name for name in keys if getattr(self, name)]
        if len(sources) != 1:
            raise ValueError("exactly one of command, file, callable and endpoint")
        for name in ("client_id", "client_secret"):
            if self.endpoint and getattr(self, name) is None:
                raise MisplacedKey("a value, since there is an endpoint", name)
        for name in ("client_id", "client_secret", "scope", "ca"):
            if not self.endpoint and getattr(self, name) is not None:
                raise MisplacedKey("nothing, since there is no endpoint", name)
        safe = r"https:.*|http://(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/].*)?"
        if self.endpoint and re.fullmatch(safe, self.endpoint) is None:
            raise MisplacedKey("https, since a secret is sent there", "endpoint")
        return self


class Kerberos(Section):
    """The Kerberos tickets for GSSAPI. They are used wherever a connection is made: on the driver
    and on executors."""

    service_name: str = Field(
        default="kafka",
        pattern=SERVICE_NAME,
        description="The first part of the brokers' principal, their `sasl.kerberos.service.name`.",
    )
    principal: str | None = Field(
        default=None,
        json_schema_extra={"examples": ["lander@EXAMPLE.COM"]},
        description="The principal that logs in; by default the one whose tickets are in the "
        "cache, or the first in the keytab.",
    )
    keytab: str | None = Field(
        default=None,
        description="A keytab file, at the same path on the driver and every executor. Without it "
        "the ticket cache of each process is used (`KRB5CCNAME`).",
    )


class Sasl(Section):
    """How this client logs in: with a name and password, with a token, or with Kerberos."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["username", "password"]},
                {"required": ["token"]},
                {"required": ["mechanism"], "properties": {"mechanism": {"const": "GSSAPI"}}},
            ]
        }
    )

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] = Field(
        default="PLAIN",
        description="The SASL mechanism. PLAIN sends the password and OAUTHBEARER the token in "
        "plain text, so use them with TLS only. SCRAM does not send the password. GSSAPI is "
        "Kerberos; it needs the extra `kerberos`.",
    )
    username: str | None = Field(
        default=None,
        description="The name in the broker's access rules. Not with OAUTHBEARER.",
    )
    password: SecretRef | None = Field(
        default=None, description="Looked up when a run begins. Not with OAUTHBEARER."
    )
    token: Token | None = Field(default=None, description="With OAUTHBEARER only.")
    extensions: dict[str, str] = Field(
        default_factory=dict,
        json_schema_extra={"title": "name: text", "examples": [{"logicalCluster": "lkc-1"}]},
        description="Extensions that the broker expects with the token. With OAUTHBEARER only.",
    )

    kerberos: Kerberos | None = Field(default=None, description="With GSSAPI only.")
    delegation_token: bool = Field(
        default=False,
        description="Whether `username` and `password` are the id and the HMAC of a Kafka "
        "delegation token. With SCRAM only.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Sasl:
        required, useless = _BY_MECHANISM.get(self.mechanism, _NAMED)
        if self.delegation_token and not self.mechanism.startswith("SCRAM"):
            raise MisplacedKey(
                f"nothing, since the mechanism is {self.mechanism}", "delegation_token"
            )
        for name in required:
            if not getattr(self, name):
                raise MisplacedKey(f"a value, since the mechanism is {self.mechanism}", name)
        for name in useless:
            if getattr(self, name):
                raise MisplacedKey(f"nothing, since the mechanism is {self.mechanism}", name)
        if "\0" in (self.username or ""):
            raise MisplacedKey("a name without NUL", "username")
        for name, text in self.extensions.items():  # RFC 7628 3.1
            if not re.fullmatch(r"[A-Za-z]+", name) or name.lower() == "auth":
                raise MisplacedKey("names of letters, and not auth", "extensions", name)
            if not re.fullmatch(r"[\x20-\x7e\t\r\n]*", text):
                raise MisplacedKey("printable ASCII", "extensions", name)
        return self


class Acl(Section):
    """A key pair that signs requests, for RocketMQ."""

    access_key: str = Field(description="The name in the broker's access rules.")
    secret_key: SecretRef = Field(description="The key that signs requests; it is never sent.")


class ZooKeeperUser(Section):
    """A name and password at a ZooKeeper."""

    scheme: Literal["digest", "sasl"] = Field(
        default="digest",
        description="ZooKeeper's scheme of authentication. `sasl` uses DIGEST-MD5, for servers "
        "with a list of users, and needs the extra `zookeeper`. `digest` sends the password in "
        "plain text, so use it with TLS only; ZooKeeper only compares it with access lists.",
    )
    username: str = Field(pattern=ZOOKEEPER_USER, description="The name in access lists.")
    password: SecretRef = Field(description="Looked up in the driver.")


class ZooKeeperSecurity(Section):
    """How `source.zookeeper` is reached, by the driver only. Nodes that are created for a group
    have an open access list, like the nodes of other consumers."""

    tls: Tls | bool = Field(
        default=False, description="`true`, or a section that names certificates."
    )
    login: ZooKeeperUser | None = Field(default=None, description="The identity of this client.")


class Security(Section):
    """How connections to brokers are encrypted and authenticated."""

    tls: Tls | bool = Field(
        default=False,
        description="`true`, or a section that names certificates.",
    )
    sasl: Sasl | None = Field(
        default=None, description="A name and password, or a token, for Kafka brokers."
    )
    acl: Acl | None = Field(default=None, description="A key pair, for RocketMQ brokers.")
    zookeeper: ZooKeeperSecurity | None = Field(
        default=None, description="TLS and a login for `source.zookeeper`."
    )
