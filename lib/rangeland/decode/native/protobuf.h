/* Protobuf's wire format, read by message types that were compiled to tables of fields.
 *
 * Part of kernel.c, whose rules apply here too; test_protobuf_payloads.py compares it with Google's
 * decoder. The tables come from decode/payload/protobuf/protobuf_columns.py. A message type has
 * rows of its own for every place where it is used, and recursive types are refused: so each field
 * has one slot for what has been seen of it in the message that is being read. Singular fields are
 * put into their columns when their message has ended, because the last occurrence counts; items of
 * repeated fields are put at once. Several occurrences of a singular message form one message: the
 * bytes of all of them, one after the other. A value that does not fit a field of the schema is a
 * fault, where Google's decoder would drop it or cut it off. An unknown number in a closed enum is
 * not a value: as in Google's decoder, it counts as absent, and if it is the value of a map entry,
 * the whole entry is left out. */

enum proto_kind {
    PROTO_INT32 = 1,
    PROTO_INT64 = 2,
    PROTO_UINT32 = 3,
    PROTO_UINT64 = 4,
    PROTO_SINT32 = 5,
    PROTO_SINT64 = 6,
    PROTO_BOOL = 7,
    PROTO_FIXED32 = 8,
    PROTO_FIXED64 = 9,
    PROTO_SFIXED32 = 10,
    PROTO_FLOAT = 11,
    PROTO_DOUBLE = 12,
    PROTO_BYTES = 13, /* strings too */
    PROTO_MESSAGE = 14,
    PROTO_GROUP = 15,
    PROTO_CLOSED_ENUM = 16, /* children: its numbers */
};

enum proto_label {
    PROTO_IMPLICIT = 0, /* if absent, zero or empty; for a message, an empty one */
    PROTO_OPTIONAL = 1, /* if absent, null */
    PROTO_REQUIRED = 2,
    PROTO_REPEATED = 3,
    PROTO_IN_ENTRY = 4, /* in the entry of a map: treated as implicit */
};

enum proto_form {
    PROTO_FIELDS = 0,
    PROTO_EMPTY = 1,     /* put as true */
    PROTO_WRAPPER = 2,   /* put as its only field */
    PROTO_TIMESTAMP = 3, /* seconds and nanoseconds, put as microseconds */
    PROTO_DURATION = 4,
    PROTO_STRUCT = 5, /* these three are JSON: checked, and put as their bytes */
    PROTO_VALUE = 6,
    PROTO_LIST = 7,
};

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, GROUP = 3, GROUP_END = 4, FOUR_BYTES = 5 };
enum { SPARE_PER_BYTE = 4 }; /* memory for messages in parts, per byte of a payload */
enum { DEEPEST_GROUP = 100, DEEPEST_JSON = 100, SECOND = 1000000, NANOSECONDS = 1000000000 };

typedef struct {
    int64_t number, kind, label, column, message, oneof, first_child, children;
} proto_field_t; /* a message's fields are in ascending order of numbers */

typedef struct {
    int64_t form, column, first_field, fields, first_oneof, oneofs;
} proto_message_t;

typedef struct {
    int64_t is_seen, value;
    const uint8_t *from;
    int64_t length;
} proto_slot_t;

typedef struct {
    const proto_message_t *messages;
    const proto_field_t *fields;
    const int64_t *children;
    proto_slot_t *slots; /* one for each field */
    int64_t *cases;      /* for each oneof, the field that was seen last */
    uint8_t *spare;      /* for messages that come in parts */
    int64_t spare_size;
} proto_program_t;

typedef struct {
    sink_t sink;
    const proto_program_t *program;
    const uint8_t *at; /* of a fault */
    int64_t spare_used, place, spare_room;
} proto_t;

INLINE int proto_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    const uint8_t *p = *at;
    uint64_t raw = 0;
    for (int shift = 0;; shift += 7) {
        if (UNLIKELY(p == end)) return PAYLOAD_ENDS;
        uint64_t byte = *p++;
        if (shift == 63 && UNLIKELY(byte > 1)) return NUMBER_TOO_LONG;
        raw |= (byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    *value = raw;
    *at = p;
    return OK;
}

INLINE int proto_tag(const uint8_t **at, const uint8_t *end, int64_t *number, int *wire) {
    uint64_t tag;
    int fault = proto_varint(at, end, &tag);
    if (UNLIKELY(fault)) return fault;
    *number = (int64_t)(tag >> 3);
    *wire = (int)(tag & 7);
    return UNLIKELY(tag > UINT32_MAX || !*number || *wire > FOUR_BYTES) ? IMPOSSIBLE_TAG : OK;
}

INLINE int proto_length(const uint8_t **at, const uint8_t *end, const uint8_t **from,
                        int64_t *length) {
    uint64_t size;
    int fault = proto_varint(at, end, &size);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(size > (uint64_t)(end - *at))) return LENGTH_PAST_END;
    *from = *at;
    *length = (int64_t)size;
    *at += size;
    return OK;
}

/* Skips a value; for a group, `*inner` is where its end tag begins. */
static int proto_skip(const uint8_t **at, const uint8_t *end, int64_t number, int wire,
                      int depth, const uint8_t **inner) {
    const uint8_t *from;
    uint64_t value;
    int64_t length, size = wire == FOUR_BYTES ? 4 : 8;
    switch (wire) {
    case VARINT: return proto_varint(at, end, &value);
    case LENGTH: return proto_length(at, end, &from, &length);
    case FOUR_BYTES:
    case EIGHT_BYTES:
        if (UNLIKELY(end - *at < size)) return PAYLOAD_ENDS;
        *at += size;
        return OK;
    case GROUP_END: return MISPLACED_GROUP;
    }
    if (UNLIKELY(depth == DEEPEST_GROUP)) return TOO_DEEP;
    for (;;) {
        int64_t found;
        *inner = *at;
        int fault = proto_tag(at, end, &found, &wire);
        if (UNLIKELY(fault)) return fault;
        if (wire == GROUP_END) return UNLIKELY(found != number) ? MISPLACED_GROUP : OK;
        const uint8_t *nested;
        fault = proto_skip(at, end, found, wire, depth + 1, &nested);
        if (UNLIKELY(fault)) return fault;
    }
}

INLINE int proto_wire(int64_t kind) {
    switch (kind) {
    case PROTO_FIXED32:
    case PROTO_SFIXED32:
    case PROTO_FLOAT: return FOUR_BYTES;
    case PROTO_FIXED64:
    case PROTO_DOUBLE: return EIGHT_BYTES;
    case PROTO_BYTES:
    case PROTO_MESSAGE: return LENGTH;
    case PROTO_GROUP: return GROUP;
    default: return VARINT;
    }
}

static int has_child(const proto_program_t *program, const proto_field_t *field, int64_t value) {
    for (int64_t low = 0, high = field->children; low < high;) {
        int64_t middle = low + (high - low) / 2, found = program->children[field->first_child + middle];
        if (found == value) return 1;
        if (found < value)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* A number, read according to the wire type of its kind. `*is_known`: it is not an unknown number
 * of an enum. */
INLINE int proto_number(const proto_program_t *program, const proto_field_t *field,
                        const uint8_t **at, const uint8_t *end, int64_t *value, int *is_known) {
    uint64_t raw = 0;
    *is_known = 1;
    int wire = proto_wire(field->kind), fault = OK;
    if (wire == VARINT) {
        fault = proto_varint(at, end, &raw);
        if (UNLIKELY(fault)) return fault;
    } else {
        int64_t size = wire == FOUR_BYTES ? 4 : 8;
        if (UNLIKELY(end - *at < size)) return PAYLOAD_ENDS;
        __builtin_memcpy(&raw, *at, (uint64_t)size);
        *at += size;
    }
    switch (field->kind) {
    case PROTO_INT32:
    case PROTO_CLOSED_ENUM:
        *value = (int32_t)raw;
        /* Some writers write negative numbers in 32 bits. */
        if (UNLIKELY((int64_t)raw != *value && raw > UINT32_MAX)) return NUMBER_RANGE;
        if (field->kind == PROTO_CLOSED_ENUM) *is_known = has_child(program, field, *value);
        break;
    case PROTO_SFIXED32: *value = (int32_t)raw; break;
    case PROTO_UINT32:
    case PROTO_FIXED32:
        if (UNLIKELY(raw > UINT32_MAX)) return NUMBER_RANGE;
        *value = (int64_t)raw;
        break;
    case PROTO_SINT32: {
        if (UNLIKELY(raw > UINT32_MAX)) return NUMBER_RANGE;
        uint32_t low = (uint32_t)raw;
        *value = (int32_t)((low >> 1) ^ (0u - (low & 1)));
        break;
    }
    case PROTO_SINT64: *value = (int64_t)((raw >> 1) ^ (0u - (raw & 1))); break;
    case PROTO_BOOL: *value = raw != 0; break;
    default: *value = (int64_t)raw;
    }
    return OK;
}

static int put_proto_number(sink_t *sink, const proto_field_t *field, int64_t column,
                            int64_t value) {
    column_t *target = &sink->columns[column];
    if (field->kind == PROTO_FLOAT) {
        float number;
        uint32_t low = (uint32_t)value;
        __builtin_memcpy(&number, &low, 4);
        return put_double(sink, target, number);
    }
    if (field->kind == PROTO_DOUBLE) {
        double number;
        __builtin_memcpy(&number, &value, 8);
        return put_double(sink, target, number);
    }
    return put_number(sink, target, value);
}

static int proto_message(proto_t *proto, int64_t index, const uint8_t *at, const uint8_t *end);

/* One occurrence of a repeated field, or several packed into one. */
INLINE int proto_items(proto_t *proto, const proto_field_t *field, const uint8_t **at,
                       const uint8_t *end, int wire, int64_t number) {
    int64_t length, value, column = field->column + 1;
    const uint8_t *from, *inner;
    int fault, is_known;
    if (wire == GROUP) {
        from = *at;
        fault = proto_skip(at, end, number, wire, 0, &inner);
        return UNLIKELY(fault) ? fault : proto_message(proto, field->message, from, inner);
    }
    if (wire == LENGTH) {
        fault = proto_length(at, end, &from, &length);
        if (UNLIKELY(fault)) return fault;
        if (field->kind == PROTO_MESSAGE)
            return proto_message(proto, field->message, from, from + length);
        if (field->kind == PROTO_BYTES)
            return put_bytes(&proto->sink, &proto->sink.columns[column], from, length, end - from);
        end = from + length;
        at = &from;
    }
    int is_packed = wire == LENGTH;
    if (is_packed && *at == end) return OK;
    do {
        fault = proto_number(proto->program, field, at, end, &value, &is_known);
        if (!fault && is_known) fault = put_proto_number(&proto->sink, field, column, value);
        if (UNLIKELY(fault)) return fault;
    } while (is_packed && *at < end);
    return OK;
}

/* Appends the bytes of another part of a message to those already seen. */
static int proto_merge(proto_t *proto, proto_slot_t *slot, const uint8_t *from, int64_t length) {
    int64_t sum = slot->length + length;
    if (UNLIKELY(sum > proto->spare_room - proto->spare_used)) return MERGE_TOO_LARGE;
    uint8_t *to = proto->program->spare + proto->spare_used;
    if (slot->length) __builtin_memcpy(to, slot->from, (uint64_t)slot->length);
    if (length) __builtin_memcpy(to + slot->length, from, (uint64_t)length);
    slot->from = to;
    slot->length = sum;
    proto->spare_used += sum;
    return OK;
}

INLINE int proto_see(proto_t *proto, const proto_field_t *field, const uint8_t **at,
                     const uint8_t *end, int wire, int *is_known) {
    int64_t index = field - proto->program->fields, length = 0;
    proto_slot_t *slot = &proto->program->slots[index];
    const uint8_t *from = *at;
    int fault;
    *is_known = 1;
    if (wire == LENGTH) {
        fault = proto_length(at, end, &from, &length);
    } else if (wire == GROUP) {
        const uint8_t *inner = from;
        fault = proto_skip(at, end, field->number, wire, 0, &inner);
        length = inner - from;
    } else {
        int64_t value;
        fault = proto_number(proto->program, field, at, end, &value, is_known);
        if (!fault && *is_known) slot->value = value;
    }
    if (UNLIKELY(fault) || !*is_known) return fault;
    int is_again = slot->is_seen;
    if (field->oneof >= 0) {
        is_again = is_again && proto->program->cases[field->oneof] == index;
        proto->program->cases[field->oneof] = index;
    }
    slot->is_seen = 1;
    if (is_again && (field->kind == PROTO_MESSAGE || field->kind == PROTO_GROUP))
        return proto_merge(proto, slot, from, length);
    slot->from = from;
    slot->length = length;
    return OK;
}

/* Puts what was seen of a singular field into a column. */
static int proto_put(proto_t *proto, const proto_field_t *field, int64_t column) {
    int64_t index = field - proto->program->fields;
    const proto_slot_t *slot = &proto->program->slots[index];
    int is_message = field->kind == PROTO_MESSAGE || field->kind == PROTO_GROUP;
    int is_seen = slot->is_seen &&
                  (field->oneof < 0 || proto->program->cases[field->oneof] == index);
    if (!is_seen) {
        if (field->label == PROTO_REQUIRED) return REQUIRED_MISSING;
        if (field->label == PROTO_OPTIONAL) return put_null(&proto->sink, column);
    }
    const uint8_t *from = is_seen ? slot->from : proto->program->spare;
    int64_t length = is_seen ? slot->length : 0;
    if (is_message) return proto_message(proto, field->message, from, from + length);
    if (field->kind == PROTO_BYTES)
        return put_bytes(&proto->sink, &proto->sink.columns[column], from, length, length);
    return put_proto_number(&proto->sink, field, column, is_seen ? slot->value : 0);
}

/* Timestamps and durations. The nanoseconds of negative durations are negative too. */
static int proto_micros(proto_t *proto, const proto_message_t *message) {
    const proto_slot_t *slots = &proto->program->slots[message->first_field];
    int64_t seconds = slots[0].is_seen ? slots[0].value : 0, micros;
    int64_t nanos = slots[1].is_seen ? slots[1].value : 0;
    int64_t least = message->form == PROTO_TIMESTAMP ? 0 : 1 - NANOSECONDS;
    if (UNLIKELY(nanos < least || nanos >= NANOSECONDS)) return NUMBER_RANGE;
    if (UNLIKELY(__builtin_mul_overflow(seconds, (int64_t)SECOND, &micros) ||
                 __builtin_add_overflow(micros, nanos / 1000, &micros)))
        return NUMBER_RANGE;
    return put_number(&proto->sink, &proto->sink.columns[message->column], micros);
}

static int proto_flush(proto_t *proto, const proto_message_t *message) {
    const proto_field_t *fields = &proto->program->fields[message->first_field];
    column_t *column = &proto->sink.columns[message->column];
    int fault = OK;
    switch (message->form) {
    case PROTO_EMPTY: return put_number(&proto->sink, column, 1);
    case PROTO_WRAPPER: return proto_put(proto, fields, message->column);
    case PROTO_TIMESTAMP:
    case PROTO_DURATION: return proto_micros(proto, message);
    }
    fault = put_struct(&proto->sink, column);
    for (int64_t i = 0; !fault && i < message->fields; i++) {
        fault = fields[i].label == PROTO_REPEATED ? put_list(&proto->sink, fields[i].column)
                                                  : proto_put(proto, &fields[i], fields[i].column);
        if (UNLIKELY(fault) && proto->place < 0) proto->place = message->first_field + i;
    }
    return fault;
}

/* The field with a number: usually the one after the field that was found last. */
INLINE const proto_field_t *proto_find(const proto_field_t *fields, int64_t count, int64_t number,
                                       int64_t *next) {
    if (*next < count && fields[*next].number == number) return &fields[(*next)++];
    for (int64_t low = 0, high = count; low < high;) {
        int64_t middle = low + (high - low) / 2;
        if (fields[middle].number == number) {
            *next = middle + 1;
            return &fields[middle];
        }
        if (fields[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* google.protobuf.Struct, Value and ListValue, which may contain each other. An entry of a struct
 * is checked like one: its first field is the key, its second the value. */
enum { JSON_ENTRY = 8, JSON_TEXT_PER_BYTE = 8 };

static int proto_json(const uint8_t *at, const uint8_t *end, int form, int depth) {
    if (UNLIKELY(depth == DEEPEST_JSON)) return TOO_DEEP;
    while (at < end) {
        int64_t number, length;
        int wire, inner = 0;
        const uint8_t *from;
        int fault = proto_tag(&at, end, &number, &wire);
        if (UNLIKELY(fault)) return fault;
        if (UNLIKELY(wire == GROUP)) return MISPLACED_GROUP; /* nobody writes one here */
        if (wire != LENGTH) {
            fault = proto_skip(&at, end, number, wire, 0, &from);
            if (UNLIKELY(fault)) return fault;
            continue;
        }
        fault = proto_length(&at, end, &from, &length);
        if (UNLIKELY(fault)) return fault;
        int is_text = number == (form == PROTO_VALUE ? 3 : form == JSON_ENTRY ? 1 : 0);
        if (is_text && UNLIKELY(!is_utf8(from, length))) return NOT_UTF8;
        if (form == PROTO_STRUCT && number == 1) inner = JSON_ENTRY;
        if (form == PROTO_LIST && number == 1) inner = PROTO_VALUE;
        if (form == JSON_ENTRY && number == 2) inner = PROTO_VALUE;
        if (form == PROTO_VALUE && number == 5) inner = PROTO_STRUCT;
        if (form == PROTO_VALUE && number == 6) inner = PROTO_LIST;
        if (inner) fault = proto_json(from, from + length, inner, depth + 1);
        if (UNLIKELY(fault)) return fault;
    }
    return OK;
}

static int proto_message(proto_t *proto, int64_t index, const uint8_t *at, const uint8_t *end) {
    const proto_program_t *program = proto->program;
    const proto_message_t *message = &program->messages[index];
    const proto_field_t *fields = &program->fields[message->first_field];
    int64_t next = 0;
    int is_known, is_left_out = 0;
    if (message->form >= PROTO_STRUCT) {
        int fault = proto_json(at, end, (int)message->form, 0);
        if (UNLIKELY(fault)) return fault;
        column_t *column = &proto->sink.columns[message->column];
        proto->sink.used += (end - at) * JSON_TEXT_PER_BYTE;
        return put_bytes(&proto->sink, column, at, end - at, end - at);
    }
    for (int64_t i = 0; i < message->fields; i++)
        program->slots[message->first_field + i].is_seen = 0;
    for (int64_t i = 0; i < message->oneofs; i++) program->cases[message->first_oneof + i] = -1;
    while (at < end) {
        int64_t number;
        int wire;
        const uint8_t *inner;
        proto->at = at;
        int fault = proto_tag(&at, end, &number, &wire);
        if (UNLIKELY(fault)) return fault;
        const proto_field_t *field = proto_find(fields, message->fields, number, &next);
        int wanted = field ? proto_wire(field->kind) : -1;
        if (!field)
            fault = proto_skip(&at, end, number, wire, 0, &inner);
        else if (field->label == PROTO_REPEATED &&
                 (wire == wanted || (wire == LENGTH && wanted != GROUP)))
            fault = proto_items(proto, field, &at, end, wire, number);
        else if (field->label != PROTO_REPEATED && wire == wanted) {
            fault = proto_see(proto, field, &at, end, wire, &is_known);
            is_left_out |= !is_known && field->label == PROTO_IN_ENTRY;
        } else
            fault = OTHER_WIRE_TYPE;
        if (UNLIKELY(fault)) {
            if (field && proto->place < 0) proto->place = field - program->fields;
            return fault;
        }
    }
    return is_left_out ? OK : proto_flush(proto, message);
}

static int proto_payload(void *decoder, const payloads_t *payloads, int64_t at) {
    proto_t *proto = decoder;
    const uint8_t *from = payloads->data + payloads->starts[at];
    int64_t length = payloads->ends[at] - payloads->starts[at];
    proto->at = from;
    proto->spare_used = 0;
    /* Limited by the payload's own length, so that the result does not depend on the payloads next
     * to it. */
    proto->spare_room = SPARE_PER_BYTE * length;
    if (UNLIKELY(proto->spare_room > proto->program->spare_size)) return CAPACITY;
    proto->place = -1;
    int fault = proto_message(proto, payloads->roots[at], from, from + length);
    if (UNLIKELY(fault)) {
        int is_inside = proto->at >= from && proto->at <= from + length;
        payloads->positions[at] = is_inside ? proto->at - from : -1;
        payloads->places[at] = proto->place;
    }
    return fault;
}

EXPORT int32_t rangeland_decode_protobuf(const payloads_t *payloads,
                                         const proto_program_t *program, const sink_t *sink, progress_t *progress) {
    proto_t proto = {*sink, program, 0, 0, -1, 0};
    return decode_payloads(payloads, &proto.sink, &proto, proto_payload, progress);
}
