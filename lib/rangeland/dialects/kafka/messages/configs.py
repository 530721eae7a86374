"""DescribeConfigs: the settings of topics."""

from __future__ import annotations

from rangeland.wire.declarations import *

TOPIC = 2
"""The resource type of a topic."""


@struct
class ConfigSynonym:
    name: String
    value: String | None
    source: Int8


@struct
class DescribedConfig:
    """``value`` None: secret, or not set."""

    name: String
    value: String | None
    read_only: Bool
    is_default: Bool = since(0, until=0, default=False)
    config_source: Int8 = since(1, default=-1, ignorable=True)
    is_sensitive: Bool
    synonyms: Array[ConfigSynonym] = since(1, default=(), ignorable=True)
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: String | None = since(3, default=None, ignorable=True)


@struct
class DescribedResource:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: Array[DescribedConfig]


@struct
class DescribeConfigsResponse:
    throttle_time_ms: Int32
    results: Array[DescribedResource]


@struct
class ConfigResource:
    """``configuration_keys`` None: all keys."""

    resource_type: Int8
    resource_name: String
    configuration_keys: Array[String] | None


@message(key=32, versions=(0, 4), flexible_from=4, response=DescribeConfigsResponse)
class DescribeConfigsRequest:
    resources: Array[ConfigResource]
    include_synonyms: Bool = since(1, default=False, ignorable=True)
    include_documentation: Bool = since(3, default=False, ignorable=True)
