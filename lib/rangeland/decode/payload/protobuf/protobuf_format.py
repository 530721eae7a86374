"""Protobuf payloads: either framed with the id of their schema and the indexes of their message, or
bare.

The table's descriptors decode all of them, as fields are known by their numbers. Of a writer's
schema only the places of messages in its file matter, which are in the text of the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import pyarrow as pa

from rangeland.decode.payload.payload_bytes import PayloadBytes, PayloadFault
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadFormat,
    PayloadSchemaError,
)
from rangeland.decode.payload.payload_kernel import PayloadKernel
from rangeland.decode.payload.protobuf.message_indexes import ProtoText
from rangeland.decode.payload.protobuf.protobuf_columns import ProtobufCompiler
from rangeland.decode.payload.protobuf.protobuf_descriptors import parse_descriptor_set
from rangeland.decode.payload.schema_ids.confluent_framing import (
    read_message_indexes,
    skip_message_indexes,
)
from rangeland.decode.payload.schema_ids.framed_decoder import FramedDecoder, Written
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters

CHOOSE: Final = "name one of them as message in the job file, beside format"
AMBIGUOUS: Final = (
    "its message indexes are ambiguous, as not all serializers count map entries and groups: "
    "declare it at the top of its file, or land the bytes"
)


@dataclass(frozen=True)
class ProtobufFormat(PayloadFormat):
    """Payloads in Protobuf, decoded to one message type."""

    descriptors: bytes
    """A descriptor set with all imports, in which the file itself comes last."""
    message: str = ""
    """The full name of the message, which may be left out if the file has only one."""
    writers: SubjectWriters | None = None
    """The writers of payloads that are framed with a schema id. If it is None, payloads are
    bare."""
    name = "protobuf"

    def __post_init__(self) -> None:
        """Raises PayloadSchemaError."""
        self.decoder()

    @property
    def arrow_type(self) -> pa.DataType:
        return self.decoder().arrow_type

    def decoder(self) -> ProtobufDecoder:
        return ProtobufDecoder(self)


class ProtobufDecoder(FramedDecoder[ProtoText]):
    """Decodes payloads of a ``ProtobufFormat``. All it needs of a writer's schema is which messages
    its indexes mean."""

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

    def _need(self, schema: RegisteredSchema) -> ProtoText | str:
        text = ProtoText(schema.text)
        return text if text.likely_indexes(self._message) else f"has no message {self._message}"

    def _decode_bodies(
        self, payloads: PayloadBytes, written: Written[ProtoText]
    ) -> DecodedPayloads:
        for rows, text in written:
            likely = text.likely_indexes(self._message)
            skip_message_indexes(payloads, rows, likely, partial(self._index_fault, text))
        return DecodedPayloads(self._kernel.decode_protobuf(payloads, self._program, self._columns))

    def _index_fault(self, text: ProtoText, indexes: Sequence[int]) -> PayloadFault | None:
        """The fault of a payload with these indexes. One that may hold another message has one: to
        decode it would be a guess."""
        meanings = text.meanings(indexes)
        if meanings == [self._message]:
            return None
        is_possible = self._message in meanings
        return PayloadFault.AMBIGUOUS_MESSAGE if is_possible else PayloadFault.OTHER_MESSAGE

    def _detail(self, payloads: PayloadBytes, row: int, schema_id: int) -> str:
        if payloads.faults[row] != PayloadFault.AMBIGUOUS_MESSAGE:
            return ""
        found = read_message_indexes(payloads, row)
        text = self._needed[schema_id]
        if found is None or not isinstance(text, ProtoText):
            return ""
        indexes, _ = found
        names = " or ".join(text.meanings(indexes)[:5])
        return f"{AMBIGUOUS}; {indexes} is {names}"
