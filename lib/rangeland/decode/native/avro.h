/* Avro's binary encoding, read by a schema that was compiled to a table of nodes.
 *
 * Part of kernel.c, whose rules apply here too; test_avro_decoder.py compares it with fastavro. A
 * node says how to read a value of the writer's schema and which column takes it; column -1 means
 * that none does, so the same walk also skips fields that the reader does not have. The nodes come
 * from decode/payload/avro/avro_resolution.py, which refuses recursive schemas: so the walk is
 * never deeper than the schema. */

enum avro_operation {
    AVRO_NULL = 1,
    AVRO_BOOLEAN = 2,
    AVRO_INT = 3,
    AVRO_LONG = 4,   /* argument: the factor by which the number is multiplied or, if negative,
                      * divided; the quotient is rounded down */
    AVRO_FLOAT = 5,
    AVRO_DOUBLE = 6,
    AVRO_BYTES = 7,  /* strings too */
    AVRO_FIXED = 8,  /* argument: its size */
    AVRO_ENUM = 9,   /* children: the number to put for each symbol, -1 if the reader lacks it */
    AVRO_RECORD = 10,
    AVRO_ARRAY = 11, /* argument: whether items may take no bytes */
    AVRO_MAP = 12,
    AVRO_UNION = 13, /* argument: the branch; -1: read it. column: the struct that has a field for
                      * each branch, or -1. children: the branches, then their columns */
    AVRO_UUID = 14,
    AVRO_DEFAULT = 15, /* argument: where, among the constants, the value for its child begins */
    AVRO_UNRESOLVED = 16,
};

enum { MOST_EMPTY_ITEMS = 1024 };

typedef struct {
    int64_t operation, column, argument, first, count; /* children: [first, first + count) */
} avro_node_t;

typedef struct {
    sink_t sink;
    const avro_node_t *nodes;
    const int64_t *children;
    const uint8_t *constants;
    const uint8_t *at, *end;
    int64_t empty_items, place;
} avro_t;

INLINE int avro_long(avro_t *avro, int64_t *value) {
    if (avro->at < avro->end && *avro->at < 0x80) {
        uint8_t raw = *avro->at++;
        *value = (raw >> 1) ^ -(int64_t)(raw & 1);
        return OK;
    }
    int fault = read_varlong(&avro->at, avro->end, value, PAYLOAD_ENDS);
    return fault == VARINT_TOO_LONG ? NUMBER_TOO_LONG : fault;
}

INLINE int avro_bytes(avro_t *avro, const uint8_t **from, int64_t *length) {
    int fault = avro_long(avro, length);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(*length < 0)) return LENGTH_NEGATIVE;
    if (UNLIKELY(*length > avro->end - avro->at)) return LENGTH_PAST_END;
    *from = avro->at;
    avro->at += *length;
    return OK;
}

static int avro_walk(avro_t *avro, int64_t index);

/* The next block of an array or a map: how many items, and its stated end, or 0. */
static int avro_block(avro_t *avro, const avro_node_t *node, int64_t *count,
                      const uint8_t **block_end) {
    *block_end = 0;
    int fault = avro_long(avro, count);
    if (UNLIKELY(fault)) return fault;
    if (*count < 0) {
        int64_t size;
        if (UNLIKELY(*count == INT64_MIN)) return NUMBER_RANGE;
        *count = -*count;
        fault = avro_long(avro, &size);
        if (UNLIKELY(fault)) return fault;
        if (UNLIKELY(size < 0)) return LENGTH_NEGATIVE;
        if (UNLIKELY(size > avro->end - avro->at)) return LENGTH_PAST_END;
        *block_end = avro->at + size;
    }
    if (node->argument) {
        if (UNLIKELY(*count > MOST_EMPTY_ITEMS - avro->empty_items)) return TOO_MANY_EMPTY;
        avro->empty_items += *count;
    } else if (UNLIKELY(*count > avro->end - avro->at)) {
        return LENGTH_PAST_END;
    }
    return OK;
}

static int avro_items(avro_t *avro, const avro_node_t *node) {
    column_t *columns = avro->sink.columns;
    int64_t item = avro->children[node->first], key = node->column + 2;
    for (;;) {
        int64_t count;
        const uint8_t *block_end;
        int fault = avro_block(avro, node, &count, &block_end);
        if (UNLIKELY(fault)) return fault;
        for (int64_t i = 0; i < count; i++) {
            if (node->operation == AVRO_MAP) {
                const uint8_t *from;
                int64_t length;
                fault = avro_bytes(avro, &from, &length);
                if (!fault && node->column >= 0) {
                    fault = put_struct(&avro->sink, &columns[key - 1]);
                    if (!fault)
                        fault = put_bytes(&avro->sink, &columns[key], from, length,
                                          avro->end - from);
                }
                if (UNLIKELY(fault)) return fault;
            }
            fault = avro_walk(avro, item);
            if (UNLIKELY(fault)) return fault;
        }
        if (UNLIKELY(block_end && avro->at != block_end)) return BLOCK_SIZE_WRONG;
        if (!count) return node->column < 0 ? OK : put_list(&avro->sink, node->column);
    }
}

static int avro_union(avro_t *avro, const avro_node_t *node) {
    int64_t branch = node->argument;
    int fault = branch < 0 ? avro_long(avro, &branch) : OK;
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(branch < 0 || branch >= node->count)) return NO_SUCH_BRANCH;
    int64_t child = avro->children[node->first + branch];
    if (node->column < 0 || avro->nodes[child].operation == AVRO_NULL)
        return avro_walk(avro, child);
    column_t *columns = avro->sink.columns;
    int64_t chosen = avro->children[node->first + node->count + branch];
    fault = put_struct(&avro->sink, &columns[node->column]);
    for (int64_t member = node->column + 1; !fault && member < columns[node->column].end;
         member = columns[member].end)
        if (member != chosen) fault = put_null(&avro->sink, member);
    return UNLIKELY(fault) ? fault : avro_walk(avro, child);
}

INLINE int avro_int(avro_t *avro, int64_t *value) {
    int fault = avro_long(avro, value);
    if (UNLIKELY(fault)) return fault;
    return UNLIKELY(*value != (int32_t)*value) ? NUMBER_RANGE : OK;
}

INLINE int avro_fixed(avro_t *avro, int64_t size, const uint8_t **from) {
    if (UNLIKELY(size > avro->end - avro->at)) return PAYLOAD_ENDS;
    *from = avro->at;
    avro->at += size;
    return OK;
}

/* For a field that the writer does not have: the reader's default, encoded. */
static int avro_default(avro_t *avro, const avro_node_t *node) {
    const uint8_t *at = avro->at, *end = avro->end, *from = avro->constants + node->argument;
    int64_t length;
    __builtin_memcpy(&length, from, 8);
    avro->at = from + 8;
    avro->end = avro->at + length;
    int fault = avro_walk(avro, avro->children[node->first]);
    avro->at = at;
    avro->end = end;
    return fault;
}

INLINE int64_t floor_divide(int64_t value, int64_t divisor) {
    return value / divisor - (value % divisor < 0);
}

static int avro_value(avro_t *avro, const avro_node_t *node) {
    sink_t *sink = &avro->sink;
    column_t *column = node->column < 0 ? 0 : &sink->columns[node->column];
    const uint8_t *from;
    int64_t value;
    int fault;
    switch (node->operation) {
    case AVRO_NULL: return column ? put_null(sink, node->column) : OK;
    case AVRO_BOOLEAN:
        fault = avro_fixed(avro, 1, &from);
        if (UNLIKELY(fault)) return fault;
        if (UNLIKELY(*from > 1)) return NOT_BOOLEAN;
        return column ? put_number(sink, column, *from) : OK;
    case AVRO_INT:
        fault = avro_int(avro, &value);
        return UNLIKELY(fault) || !column ? fault : put_number(sink, column, value);
    case AVRO_LONG:
        fault = avro_long(avro, &value);
        if (UNLIKELY(fault) || !column) return fault;
        if (node->argument < 0)
            value = floor_divide(value, -node->argument);
        else if (node->argument != 1 &&
                 UNLIKELY(__builtin_mul_overflow(value, node->argument, &value)))
            return NUMBER_RANGE;
        return put_number(sink, column, value);
    case AVRO_FLOAT: {
        float number;
        fault = avro_fixed(avro, 4, &from);
        if (UNLIKELY(fault) || !column) return fault;
        __builtin_memcpy(&number, from, 4);
        return put_double(sink, column, number);
    }
    case AVRO_DOUBLE: {
        double number;
        fault = avro_fixed(avro, 8, &from);
        if (UNLIKELY(fault) || !column) return fault;
        __builtin_memcpy(&number, from, 8);
        return put_double(sink, column, number);
    }
    case AVRO_BYTES:
        fault = avro_bytes(avro, &from, &value);
        if (UNLIKELY(fault) || !column) return fault;
        return put_bytes(sink, column, from, value, avro->end - from);
    case AVRO_FIXED:
        fault = avro_fixed(avro, node->argument, &from);
        if (UNLIKELY(fault) || !column) return fault;
        return put_bytes(sink, column, from, node->argument, avro->end - from);
    case AVRO_UUID: {
        uint8_t text[UUID_TEXT];
        fault = avro_fixed(avro, UUID_BYTES, &from);
        if (UNLIKELY(fault) || !column) return fault;
        write_uuid(text, from);
        return put_bytes(sink, column, text, UUID_TEXT, UUID_TEXT);
    }
    case AVRO_ENUM:
        fault = avro_long(avro, &value);
        if (UNLIKELY(fault)) return fault;
        if (UNLIKELY(value < 0 || value >= node->count)) return NO_SUCH_SYMBOL;
        if (!column) return OK;
        value = avro->children[node->first + value];
        return UNLIKELY(value < 0) ? UNRESOLVED : put_number(sink, column, value);
    case AVRO_RECORD:
        fault = !column ? OK
                : column->kind == STRUCT_COLUMN ? put_struct(sink, column)
                                                : put_number(sink, column, 1);
        for (int64_t i = 0; !fault && i < node->count; i++)
            fault = avro_walk(avro, avro->children[node->first + i]);
        return fault;
    case AVRO_ARRAY:
    case AVRO_MAP: return avro_items(avro, node);
    case AVRO_UNION: return avro_union(avro, node);
    case AVRO_DEFAULT: return avro_default(avro, node);
    default: return UNRESOLVED;
    }
}

/* If a value fails, the innermost one leaves its node as the place of the fault. */
static int avro_walk(avro_t *avro, int64_t index) {
    int fault = avro_value(avro, &avro->nodes[index]);
    if (UNLIKELY(fault) && avro->place < 0) avro->place = index;
    return fault;
}

/* A payload must end with its last value. */
static int avro_payload(void *decoder, const payloads_t *payloads, int64_t at) {
    avro_t *avro = decoder;
    const uint8_t *from = payloads->data + payloads->starts[at];
    avro->at = from;
    avro->end = payloads->data + payloads->ends[at];
    avro->empty_items = 0;
    avro->place = -1;
    int fault = avro_walk(avro, payloads->roots[at]);
    if (!fault && UNLIKELY(avro->at != avro->end)) fault = PAYLOAD_TRAILING;
    if (UNLIKELY(fault)) {
        payloads->positions[at] = avro->at - from;
        payloads->places[at] = avro->place;
    }
    return fault;
}

EXPORT int32_t rangeland_decode_avro(const payloads_t *payloads, const avro_node_t *nodes,
                                     const int64_t *children, const uint8_t *constants,
                                     const sink_t *sink, progress_t *progress) {
    avro_t avro = {*sink, nodes, children, constants, 0, 0, 0, -1};
    return decode_payloads(payloads, &avro.sink, &avro, avro_payload, progress);
}
