"""Protobuf payloads: framed with the id of their schema and the indexes of their message, or bare.

The table's descriptors decode all of them, as fields are known by their numbers. Of a writer's
schema only the place of the message in its file matters, which is in the text of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from rangeland.decode.payload.payload_bytes import PayloadBytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadFormat,
    PayloadSchemaError,
)
from rangeland.decode.payload.payload_kernel import PayloadKernel
from rangeland.decode.payload.protobuf.protobuf_columns import ProtobufCompiler
from rangeland.decode.payload.protobuf.protobuf_descriptors import (
    message_indexes,
    parse_descriptor_set,
)
from rangeland.decode.payload.schema_ids.confluent_framing import skip_message_indexes
from rangeland.decode.payload.schema_ids.framed_decoder import FramedDecoder, Written
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters

CHOOSE: Final = "name one of them as message in the job file, beside format"


@dataclass(frozen=True)
class ProtobufFormat(PayloadFormat):
    """Payloads in Protobuf, decoded to one message type."""

    descriptors: bytes
    """A descriptor set with all imports, the file itself last."""
    message: str = ""
    """The full name of the message, which may be left out if the file has only one."""
    writers: SubjectWriters | None = None
    """The writers of payloads that are framed with a schema id. Without it payloads are bare."""
    name = "protobuf"

    def __post_init__(self) -> None:
        """Raises PayloadSchemaError."""
        self.decoder()

    @property
    def arrow_type(self) -> pa.DataType:
        return self.decoder().arrow_type

    def decoder(self) -> ProtobufDecoder:
        return ProtobufDecoder(self)


class ProtobufDecoder(FramedDecoder[tuple[int, ...]]):
    """Decodes payloads of a ``ProtobufFormat``. All it needs of a writer's schema are the indexes
    of the message."""

    schema_format = SchemaFormat.PROTOBUF

    def __init__(self, form: ProtobufFormat) -> None:
        super().__init__(form.writers)
        types = parse_descriptor_set(form.descriptors)
        if not form.message and len(types.main_messages) != 1:
            raise PayloadSchemaError(
                f"it has {len(types.main_messages)} messages, and none is chosen: "
                + ", ".join(types.main_messages[:10]),
                do=CHOOSE,
            )
        if form.message and form.message not in types.messages:
            messages = ", ".join(types.main_messages[:10])
            raise PayloadSchemaError(
                f"the message {form.message} is not defined; there are {messages}", do=CHOOSE
            )
        self._message = form.message or types.main_messages[0]
        compiler = ProtobufCompiler(types, self._message)
        self.arrow_type = compiler.arrow_type
        self._columns = compiler.columns
        self._program = compiler.program()
        self.paths = self._program.paths

    @cached_property
    def _kernel(self) -> PayloadKernel:
        return PayloadKernel()

    def _need(self, schema: RegisteredSchema) -> tuple[int, ...] | str:
        indexes = message_indexes(schema.text).get(self._message)
        return indexes or f"has no message {self._message}"

    def _decode_bodies(
        self, payloads: PayloadBytes, written: Written[tuple[int, ...]]
    ) -> DecodedPayloads:
        for rows, indexes in written:
            skip_message_indexes(payloads, rows, indexes)
        return DecodedPayloads(self._kernel.decode_protobuf(payloads, self._program, self._columns))
