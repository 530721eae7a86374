/* Message sets of the oldest log format: entries of magic 1, decoded straight into Arrow buffers.
 *
 * Part of kernel.c, whose rules apply here too. An entry is `int32 length | int8 magic | int8
 * attributes | uint32 crc | payload`, where the length counts the bytes after it and the CRC-32
 * covers the payload. `walk` skips over entries by their lengths; `decode` verifies and copies the
 * entries of sets that are already decompressed. The struct layouts and fault numbers are mirrored
 * in decode/jafka/kernel.py and layout.py. */

enum {
    ENTRY_LENGTH_BYTES = 4,
    ENTRY_HEADER_BYTES = 6, /* magic, attributes, crc: the smallest valid length */
    ENTRY_MAGIC = 1,
    ENTRY_CODEC_MASK = 3,
};

enum set_fault {
    ENTRY_TOO_SHORT = 32,
    ENTRY_PAST_SET = 33,
    UNKNOWN_MAGIC = 34,
    NOT_PLAIN = 35,
    WRONG_CHECKSUM = 36,
};

typedef struct {
    const uint8_t *data;
    int64_t length, base_offset, is_packed, first_position;
} set_t;

typedef struct {
    int64_t row_capacity, byte_capacity;
    int32_t *value_offsets;
    uint8_t *value_data;
    int64_t *offsets;
    int32_t *positions;
} messages_t;

typedef struct {
    int64_t entries, start, end;
} walked_t;

typedef struct {
    int64_t rows, value_bytes, set, record, position; /* the last three are those of the fault */
} decoded_t;

/* The length of the entry at `at`, or a fault. `room`: how many bytes there are. */
INLINE int entry_length(const uint8_t *at, int64_t room, int64_t *length) {
    if (UNLIKELY(room < ENTRY_LENGTH_BYTES)) return ENTRY_PAST_SET;
    *length = (int32_t)big32(at);
    if (UNLIKELY(*length < ENTRY_HEADER_BYTES)) return ENTRY_TOO_SHORT;
    if (UNLIKELY(*length > room - ENTRY_LENGTH_BYTES)) return ENTRY_PAST_SET;
    return OK;
}

INLINE int entry_kind(const uint8_t *at) {
    if (UNLIKELY(at[ENTRY_LENGTH_BYTES] != ENTRY_MAGIC)) return UNKNOWN_MAGIC;
    return UNLIKELY(at[ENTRY_LENGTH_BYTES + 1] & ENTRY_CODEC_MASK) ? NOT_PLAIN : OK;
}

/* Walks over complete entries that begin before `until`: says how many there are, and where the
 * last one begins and ends. An incomplete entry ends the walk. With `plain_only`, the walk stops
 * with a fault before any entry that is not an uncompressed message. */
EXPORT int32_t rangeland_walk_entries(const uint8_t *data, int64_t size, int64_t until,
                                      int32_t plain_only, walked_t *result) {
    walked_t found = {0};
    int fault = OK;
    while (found.end < until) {
        int64_t length;
        fault = entry_length(data + found.end, size - found.end, &length);
        if (!fault && plain_only) fault = entry_kind(data + found.end);
        if (UNLIKELY(fault)) break;
        found.entries++;
        found.start = found.end;
        found.end += ENTRY_LENGTH_BYTES + length;
    }
    *result = found;
    return fault == ENTRY_PAST_SET ? OK : fault;
}

INLINE int put_message(const set_t *set, const uint8_t *at, int64_t length, int64_t record,
                       const messages_t *out, decoded_t *sum) {
    const uint8_t *payload = at + ENTRY_LENGTH_BYTES + ENTRY_HEADER_BYTES;
    int64_t bytes = length - ENTRY_HEADER_BYTES, row = sum->rows;
    if (UNLIKELY(row >= out->row_capacity)) return CAPACITY;
    if (UNLIKELY(sum->value_bytes + bytes > out->byte_capacity)) return CAPACITY;
    copy_bytes(out->value_data + sum->value_bytes, payload, bytes,
               set->data + set->length - payload);
    sum->value_bytes += bytes;
    out->value_offsets[row + 1] = (int32_t)sum->value_bytes;
    int64_t inside = set->is_packed ? 0 : at - set->data;
    out->offsets[row] = (int64_t)((uint64_t)set->base_offset + (uint64_t)inside);
    out->positions[row] = (int32_t)(set->is_packed ? set->first_position + record : 0);
    sum->rows++;
    return OK;
}

/* Decodes all messages of all sets, each of which must be complete and uncompressed. */
EXPORT int32_t rangeland_decode_sets(const set_t *sets, int64_t count, const messages_t *out,
                                     decoded_t *result) {
    crc_table_t table;
    decoded_t sum = {0};
    fill_crc_table(table);
    out->value_offsets[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const set_t *set = &sets[i];
        const uint8_t *at = set->data, *end = at + set->length;
        for (int64_t record = 0; at < end; record++) {
            int64_t length;
            int fault = entry_length(at, end - at, &length);
            if (!fault) fault = entry_kind(at);
            if (!fault && big32(at + ENTRY_LENGTH_BYTES + 2) !=
                              crc32_of((const uint32_t(*)[256])table,
                                       at + ENTRY_LENGTH_BYTES + ENTRY_HEADER_BYTES,
                                       length - ENTRY_HEADER_BYTES))
                fault = WRONG_CHECKSUM;
            if (!fault) fault = put_message(set, at, length, record, out, &sum);
            if (UNLIKELY(fault)) {
                sum.set = i;
                sum.record = record;
                sum.position = at - set->data;
                *result = sum;
                return fault;
            }
            at += ENTRY_LENGTH_BYTES + length;
        }
    }
    *result = sum;
    return OK;
}
