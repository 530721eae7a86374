"""Answers decoders that ask for schemas, without a schema registry."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    MissingSchemas,
    PayloadDecoder,
)
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    FoundSchema,
    RegisteredSchema,
    UnusableSchema,
)


class Schemas(Protocol):
    def of_id(self, schema_id: int) -> FoundSchema | RegisteredSchema | UnusableSchema: ...


def decode_framed(decoder: PayloadDecoder, payloads: pa.Array, schemas: Schemas) -> DecodedPayloads:
    """Decodes payloads, once the decoder has the schemas that it asks for."""
    decoded = decoder.decode(payloads)
    if isinstance(decoded, MissingSchemas):
        assert list(decoded.ids) == sorted(set(decoded.ids))
        for schema_id in decoded.ids:
            found = schemas.of_id(schema_id)
            whole = found if isinstance(found, FoundSchema) else FoundSchema(found)
            decoder.add_schema(schema_id, whole)
        decoded = decoder.decode(payloads)
    assert isinstance(decoded, DecodedPayloads)
    return decoded
