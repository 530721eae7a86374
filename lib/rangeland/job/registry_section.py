"""The `decode.registry` section of a job file: the schema registry whose ids are in the records."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from rangeland.job.secret_references import SecretRef
from rangeland.job.section import MisplacedKey, Section, UnneededKey
from rangeland.job.source_security import Tls
from rangeland.job.value_parsers import Schema
from rangeland.schema_registry.registry_settings import URL_PATTERN, is_registry_url
from rangeland.schema_registry.subject_names import SubjectNameStrategy

_URL_SCHEMA: Schema = {
    "title": "URL",
    "type": "string",
    "pattern": f"^{URL_PATTERN}$",
    "examples": ["http://registry:8081"],
}
URLS: Schema = {
    "title": "URL, or several",
    "anyOf": [_URL_SCHEMA, {"type": "array", "minItems": 1, "items": _URL_SCHEMA}],
}


def parse_urls(value: object) -> tuple[str, ...]:
    """One URL or a list of them. Raises ValueError, which does not repeat a URL, because it may
    contain a password."""
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not urls:
        raise ValueError("a URL such as http://registry:8081, or a list of them")
    for url in urls:
        if not isinstance(url, str) or not is_registry_url(url):
            raise ValueError(
                "a URL such as http://registry:8081, in ASCII, without user, password and query"
            )
    return tuple(urls)


class SchemaRegistry(Section):
    """A schema registry with Confluent's API, for records that begin with a schema id."""

    url: Annotated[tuple[str, ...], BeforeValidator(parse_urls), WithJsonSchema(URLS)] = Field(
        description="The registry's URL, with the path of its API if it has one, such as "
        "`/apis/ccompat/v7` for Apicurio; or a list of URLs of the same registry, which are "
        "tried in turn.",
    )
    username: str | None = Field(default=None, description="For basic authentication.")
    password: SecretRef | None = Field(
        default=None, description="For basic authentication; looked up in the driver."
    )
    token: SecretRef | None = Field(
        default=None, description="A bearer token, instead of a name and password."
    )
    tls: Tls | bool = Field(
        default=False,
        description="With `https`: a section that names certificates, if trusting the system's "
        "certificate authorities is not enough.",
    )
    subject_name_strategy: SubjectNameStrategy = Field(
        default=SubjectNameStrategy.TOPIC,
        description="How producers name the subjects of their schemas.",
    )

    @model_validator(mode="after")
    def _whole(self) -> SchemaRegistry:
        for name, partner in (("username", "password"), ("password", "username")):
            if getattr(self, name) and not getattr(self, partner):
                raise MisplacedKey(f"a value, since there is a {name}", partner)
        if self.token and self.username:
            raise UnneededKey("there is a username", "token")
        if ":" in (self.username or ""):
            raise MisplacedKey("a name without a colon", "username")
        if self.tls and not any(url.startswith("https:") for url in self.url):
            raise UnneededKey("no url begins with https", "tls")
        return self
