/* Messages of the log formats 0 and 1, decoded straight into Arrow buffers.
 *
 * Part of kernel.c, whose rules apply here too. A message is `int64 offset | int32 length | uint32
 * crc | int8 magic | int8 attributes | int64 timestamp (magic 1) | int32 length, key | int32
 * length, value`. The first length counts the bytes after it; the CRC-32 covers everything after
 * itself. */

enum {
    MESSAGE_LENGTH_AT = 8,
    MESSAGE_PREFIX_BYTES = 12, /* offset and length */
    MESSAGE_CRC_BYTES = 4,
    MESSAGE_HEAD_BYTES = 6,  /* crc, magic, attributes */
    MESSAGE_LEAST_BYTES = 14, /* and two empty lengths */
    MESSAGE_CODEC_MASK = 7,
    MESSAGE_LOG_APPEND = 8,
};

enum form {
    PLAIN = 0,  /* messages as in the log: each has its own timestamp type */
    PACKED = 1, /* from inside a wrapper, whose timestamp type applies to all */
    BATCH = 2,  /* records of a v2 batch */
};

typedef struct {
    int64_t count, end, first_offset, last_offset;
} run_t;

#define LAST_OFFSET (INT64_MAX - 1)

/* Walks over complete uncompressed messages with rising offsets, from the first byte on until
 * `max_bytes` are exceeded: says how many there are, and where the first entry begins that is not
 * one of them. */
EXPORT void rangeland_walk_messages(const uint8_t *data, int64_t size, int64_t max_bytes,
                                    run_t *result) {
    run_t run = {0, 0, -1, -1};
    while (run.end < max_bytes && size - run.end >= MESSAGE_PREFIX_BYTES + MESSAGE_LEAST_BYTES) {
        const uint8_t *at = data + run.end;
        int64_t offset = big64(at), length = (int32_t)big32(at + MESSAGE_LENGTH_AT);
        const uint8_t *magic = at + MESSAGE_PREFIX_BYTES + MESSAGE_CRC_BYTES;
        if (length < MESSAGE_LEAST_BYTES || length > size - run.end - MESSAGE_PREFIX_BYTES) break;
        if (magic[0] > 1 || magic[1] & MESSAGE_CODEC_MASK) break;
        if (offset <= run.last_offset || offset > LAST_OFFSET) break;
        if (run.count == 0) run.first_offset = offset;
        run.last_offset = offset;
        run.end += MESSAGE_PREFIX_BYTES + length;
        run.count++;
    }
    *result = run;
}

/* The same as `read_bytes`, with a length of four bytes. */
INLINE int read_field(const uint8_t **at, const uint8_t *end, const uint8_t **start,
                      int32_t *length) {
    const uint8_t *p = *at;
    if (UNLIKELY(end - p < 4)) return RECORD_TOO_SHORT;
    *length = (int32_t)big32(p);
    p += 4;
    if (UNLIKELY(*length < -1)) return NEGATIVE_LENGTH;
    if (UNLIKELY(*length > end - p)) return FIELD_PAST_RECORD;
    *start = p;
    *at = p + (*length > 0 ? *length : 0);
    return OK;
}

/* The timestamp in microseconds, whether it is valid, and its type; type -1: there is none. */
INLINE int read_stamp(const uint8_t **at, const uint8_t *end, const payload_t *set, int magic,
                      int attributes, int64_t *timestamp, int *is_there, int32_t *type) {
    *timestamp = 0;
    *is_there = 0;
    *type = -1;
    if (magic == 0) return OK;
    if (UNLIKELY(end - *at < 8)) return RECORD_TOO_SHORT;
    int64_t ms = big64(*at);
    if (set->form == PLAIN) {
        *type = (attributes & MESSAGE_LOG_APPEND) != 0;
    } else {
        *type = (int32_t)set->log_append;
        if (set->log_append) ms = set->append_timestamp_ms;
    }
    *is_there = as_micros(ms, timestamp);
    *at += 8;
    return OK;
}

/* Reads one message. On a fault, `*at` is where the offending field begins. */
INLINE int read_message(const uint8_t **at, const payload_t *set, int64_t *last_delta,
                        int64_t from_offset, int64_t until_offset, const uint32_t (*crc)[256],
                        const rows_t *rows, const headers_t *heads, result_t *sum) {
    const uint8_t *start = *at, *limit = set->data + set->length, *key, *value;
    int32_t key_length, value_length, type;
    int64_t offset, delta, timestamp, row = sum->rows;
    int fault, has_time;
    if (UNLIKELY(limit - start < MESSAGE_PREFIX_BYTES)) return BATCH_ENDS;
    int64_t length = (int32_t)big32(start + MESSAGE_LENGTH_AT);
    *at = start + MESSAGE_LENGTH_AT;
    if (UNLIKELY(length < 0)) return NEGATIVE_RECORD_LENGTH;
    if (UNLIKELY(length > limit - start - MESSAGE_PREFIX_BYTES)) return RECORD_PAST_BATCH;
    const uint8_t *p = start + MESSAGE_PREFIX_BYTES, *end = p + length;

    *at = start;
    if (UNLIKELY(__builtin_add_overflow(big64(start), set->offset_shift, &offset)))
        return OFFSET_OVERFLOW;
    if (UNLIKELY(__builtin_sub_overflow(offset, set->base_offset, &delta) || delta < 0 ||
                 delta > set->last_offset_delta))
        return OFFSET_DELTA_OUTSIDE;
    if (UNLIKELY(delta <= *last_delta)) return OFFSET_DELTA_ORDER;
    *last_delta = delta;
    *at = end;
    if (offset < from_offset || offset >= until_offset) return OK;

    *at = p;
    if (UNLIKELY(length < MESSAGE_HEAD_BYTES)) return RECORD_TOO_SHORT;
    if (rows && UNLIKELY(big32(p) != crc32_of(crc, p + MESSAGE_CRC_BYTES,
                                              length - MESSAGE_CRC_BYTES)))
        return WRONG_MESSAGE_CHECKSUM;
    int magic = p[MESSAGE_CRC_BYTES], attributes = p[MESSAGE_CRC_BYTES + 1];
    *at = p + MESSAGE_CRC_BYTES;
    if (UNLIKELY(magic > 1)) return UNKNOWN_MESSAGE_MAGIC;
    *at = p + MESSAGE_CRC_BYTES + 1;
    if (UNLIKELY(attributes & MESSAGE_CODEC_MASK)) return PACKED_MESSAGE;
    *at = p + MESSAGE_HEAD_BYTES;
    fault = read_stamp(at, end, set, magic, attributes, &timestamp, &has_time, &type);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(fault = read_field(at, end, &key, &key_length))) return fault;
    if (UNLIKELY(fault = read_field(at, end, &value, &value_length))) return fault;
    if (UNLIKELY(*at != end)) return RECORD_TOO_LONG;
    if (rows) {
        fault = put_key_and_value(rows, sum, set, key, key_length, value, value_length);
        if (UNLIKELY(fault)) return fault;
        rows->offsets[row] = offset;
        rows->timestamps[row] = timestamp;
        rows->timestamp_types[row] = type;
        if (!has_time) {
            clear_bit(rows->timestamp_valid, row);
            sum->timestamp_nulls++;
        }
    }
    if (heads) {
        if (UNLIKELY(row >= heads->row_capacity)) return CAPACITY;
        heads->list_offsets[row + 1] = (int32_t)sum->headers;
        clear_bit(heads->list_valid, row);
    }
    sum->rows_without_headers++;
    sum->rows++;
    return OK;
}
