/* Stored messages of RocketMQ, decoded straight into Arrow buffers.
 *
 * Part of kernel.c, whose rules apply here too. A message begins with its length and has its queue
 * offset at a fixed byte; its hosts have 4 or 16 bytes, depending on a flag. Properties are `key 1
 * value 2 key 1 value 2 ...`; the last 2 may be missing. Bodies are copied as they are stored:
 * `codecs` says which of them are compressed, and how. If tags are given, messages with none of
 * them are skipped; a message's tag is the last of its properties named TAGS that has a value. A
 * message that contains a batch of others ends any walk: it takes as many offsets as it contains
 * messages. The struct layouts and fault numbers are mirrored in decode/rocketmq/kernel.py and
 * layout.py. */

enum {
    STORED_SMALLEST = 91, /* no body, no topic, no properties, hosts of four bytes */
    STORED_MAGIC_1 = 0xdaa320a7,
    STORED_MAGIC_2 = 0xdaa320ab,
    STORED_PACKED = 0x1,
    STORED_BORN_V6 = 0x10,
    STORED_STORE_V6 = 0x20,
    STORED_NEED_UNWRAP = 0x40,
    STORED_INNER_BATCH = 0x80,
    STORED_CODEC = 0x700,
    AT_MAGIC = 4,
    AT_CRC = 8,
    AT_QUEUE_OFFSET = 20,
    AT_FLAGS = 36,
    AT_BORN = 40,
    AT_BORN_HOST = 48,
};

enum stored_fault {
    STORED_TOO_SHORT = 64,
    STORED_UNKNOWN_MAGIC = 65,
    STORED_ORDER = 66,
    STORED_INNER = 67,
    STORED_FIELD_PAST = 68,
    STORED_WRONG_CHECKSUM = 69,
    STORED_TOO_LONG = 70,
    STORED_FLAGS = 73,
};

typedef struct {
    int64_t row_capacity, header_capacity, byte_capacity;
    int32_t *key_offsets;
    uint8_t *key_data, *key_valid;
    int32_t *value_offsets;
    uint8_t *value_data;
    int64_t *offsets, *timestamps, *born;
    uint8_t *timestamp_valid, *born_valid;
    int8_t *codecs;
    int32_t *list_offsets;
    uint8_t *list_valid;
    int32_t *header_key_offsets;
    uint8_t *header_key_data;
    int32_t *header_value_offsets;
    uint8_t *header_value_data, *header_value_valid;
} stored_t;

typedef struct {
    int64_t messages, end, last_offset; /* of all messages of the walk */
    int64_t rows, packed, key_bytes, value_bytes, key_nulls;
    int64_t headers, header_key_bytes, header_value_bytes, header_value_nulls;
    int64_t rows_without_headers, keys_beyond_ascii, timestamp_nulls, born_nulls;
} stored_sum_t;

/* Tag n is `[ends[n - 1], ends[n])` of `data`; the first begins at 0. No tags: all messages. */
typedef struct {
    int64_t count;
    const uint8_t *data;
    const int32_t *ends;
} stored_tags_t;

INLINE int32_t big16(const uint8_t *p) { return (int16_t)((uint16_t)p[0] << 8 | p[1]); }

/* The length of the complete message at `at`; 0 if there is none. */
INLINE int stored_length(const uint8_t *at, int64_t room, int64_t *length) {
    *length = 0;
    if (room < 4) return OK;
    int64_t said = (int32_t)big32(at);
    if (UNLIKELY(said < STORED_SMALLEST)) return STORED_TOO_SHORT;
    if (said <= room) *length = said;
    return OK;
}

INLINE int stored_place(const uint8_t *at, int64_t last, int64_t *offset) {
    uint32_t magic = big32(at + AT_MAGIC);
    if (UNLIKELY(magic != STORED_MAGIC_1 && magic != STORED_MAGIC_2)) return STORED_UNKNOWN_MAGIC;
    *offset = big64(at + AT_QUEUE_OFFSET);
    return UNLIKELY(*offset <= last) ? STORED_ORDER : OK;
}

INLINE int64_t copied(uint8_t *to, const uint8_t *from, const uint8_t *end, const uint8_t *limit) {
    copy_bytes(to, from, end - from, limit - from);
    return end - from;
}

/* One property, `[from, end)`, whose key ends at `middle`, or at `end` if it has no value. */
INLINE int put_property(const uint8_t *from, const uint8_t *middle, const uint8_t *end,
                        const uint8_t *limit, const stored_t *out, stored_sum_t *sum) {
    int64_t header = sum->headers;
    if (UNLIKELY(header >= out->header_capacity)) return CAPACITY;
    if (UNLIKELY(sum->header_key_bytes + (middle - from) > out->byte_capacity)) return CAPACITY;
    if (UNLIKELY(sum->header_value_bytes + (end - middle) > out->byte_capacity)) return CAPACITY;
    sum->header_key_bytes +=
        copied(out->header_key_data + sum->header_key_bytes, from, middle, limit);
    if (middle == end) {
        clear_bit(out->header_value_valid, header);
        sum->header_value_nulls++;
    } else {
        sum->header_value_bytes +=
            copied(out->header_value_data + sum->header_value_bytes, middle + 1, end, limit);
    }
    out->header_key_offsets[header + 1] = (int32_t)sum->header_key_bytes;
    out->header_value_offsets[header + 1] = (int32_t)sum->header_value_bytes;
    sum->headers++;
    return OK;
}

INLINE int is_named(const char *name, const uint8_t *from, const uint8_t *middle) {
    return middle - from == 4 && __builtin_memcmp(from, name, 4) == 0;
}

/* Whether the properties contain one of the tags. They are split in the same way as in
 * put_properties. */
static int has_tag(const uint8_t *at, const uint8_t *end, const stored_tags_t *tags) {
    const uint8_t *tag = 0, *tag_end = 0;
    while (at < end) {
        const uint8_t *from = at, *middle = 0;
        while (at < end && *at != 1 && *at != 2) at++;
        middle = at;
        while (at < end && *at != 2) at++;
        if (middle < at && is_named("TAGS", from, middle)) {
            tag = middle + 1;
            tag_end = at;
        }
        at++;
    }
    if (!tag) return 0;
    int64_t start = 0;
    for (int64_t n = 0; n < tags->count; start = tags->ends[n++]) {
        int64_t length = tags->ends[n] - start;
        const uint8_t *wanted = tags->data + start;
        if (tag_end - tag == length && __builtin_memcmp(tag, wanted, (uint64_t)length) == 0)
            return 1;
    }
    return 0;
}

/* Puts all properties of one message, and its key: the last property named KEYS. */
INLINE int put_properties(const uint8_t *at, const uint8_t *end, const uint8_t *limit,
                          const stored_t *out, stored_sum_t *sum) {
    int64_t row = sum->rows, before = sum->headers;
    const uint8_t *key = 0, *key_end = 0;
    while (at < end) {
        const uint8_t *from = at, *middle = 0;
        uint8_t seen = 0;
        for (; at < end && *at > 2; at++) seen |= *at;
        for (; at < end && *at != 1 && *at != 2; at++) seen |= *at;
        if (at < end && *at == 1) {
            middle = at;
            for (; at < end && *at != 2; at++) {}
        }
        if (at > from) {
            if (!middle) middle = at;
            int fault = put_property(from, middle, at, limit, out, sum);
            if (UNLIKELY(fault)) return fault;
            sum->keys_beyond_ascii |= seen >> 7;
            if (is_named("KEYS", from, middle) && middle < at) {
                key = middle + 1;
                key_end = at;
            }
        }
        at++; /* the 2, or beyond the end */
    }
    if (key) {
        if (UNLIKELY(sum->key_bytes + (key_end - key) > out->byte_capacity)) return CAPACITY;
        sum->key_bytes += copied(out->key_data + sum->key_bytes, key, key_end, limit);
    } else {
        clear_bit(out->key_valid, row);
        sum->key_nulls++;
    }
    out->key_offsets[row + 1] = (int32_t)sum->key_bytes;
    out->list_offsets[row + 1] = (int32_t)sum->headers;
    if (sum->headers == before) {
        clear_bit(out->list_valid, row);
        sum->rows_without_headers++;
    }
    return OK;
}

INLINE int put_stored(const uint8_t *at, int64_t length, int64_t offset, const uint8_t *limit,
                      const uint32_t (*table)[256], const stored_tags_t *tags, const stored_t *out,
                      stored_sum_t *sum) {
    const uint8_t *end = at + length, *p = at + AT_BORN_HOST;
    uint32_t flags = big32(at + AT_FLAGS);
    int64_t hosts = (flags & STORED_BORN_V6 ? 12 : 0) + (flags & STORED_STORE_V6 ? 12 : 0);
    if (UNLIKELY(length < STORED_SMALLEST + hosts)) return STORED_TOO_SHORT;
    if (UNLIKELY((flags & STORED_NEED_UNWRAP) ||
                 ((flags & STORED_CODEC) && !(flags & STORED_PACKED))))
        return STORED_FLAGS;
    int64_t born = big64(at + AT_BORN), stored, body;
    p += (flags & STORED_BORN_V6 ? 16 : 4) + 4;
    stored = big64(p);
    p += 8 + (flags & STORED_STORE_V6 ? 16 : 4) + 4 + 4 + 8;
    body = (int32_t)big32(p);
    p += 4;
    if (UNLIKELY(body < 0 || body > end - p)) return STORED_FIELD_PAST;
    if (UNLIKELY((crc32_of(table, p, body) & 0x7fffffff) != big32(at + AT_CRC)))
        return STORED_WRONG_CHECKSUM;
    const uint8_t *value = p;
    p += body;
    int64_t width = big32(at + AT_MAGIC) == STORED_MAGIC_1 ? 1 : 2;
    if (UNLIKELY(end - p < width)) return STORED_FIELD_PAST;
    int64_t topic = width == 1 ? *p : big16(p);
    p += width;
    if (UNLIKELY(topic < 0 || topic + 2 > end - p)) return STORED_FIELD_PAST;
    p += topic;
    int64_t properties = big16(p);
    p += 2;
    if (UNLIKELY(properties < 0 || properties > end - p)) return STORED_FIELD_PAST;
    if (UNLIKELY(p + properties != end)) return STORED_TOO_LONG;
    int64_t row = sum->rows;
    if (UNLIKELY(row >= out->row_capacity)) return CAPACITY;
    if (tags->count && !has_tag(p, end, tags)) return OK;
    if (UNLIKELY(!as_micros(stored, &out->timestamps[row]))) {
        clear_bit(out->timestamp_valid, row);
        sum->timestamp_nulls++;
    }
    if (UNLIKELY(!as_micros(born, &out->born[row]))) {
        clear_bit(out->born_valid, row);
        sum->born_nulls++;
    }
    if (UNLIKELY(sum->value_bytes + body > out->byte_capacity)) return CAPACITY;
    sum->value_bytes += copied(out->value_data + sum->value_bytes, value, value + body, limit);
    out->value_offsets[row + 1] = (int32_t)sum->value_bytes;
    out->offsets[row] = offset;
    out->codecs[row] = flags & STORED_PACKED ? (int8_t)(flags >> 8 & 7) : -1;
    sum->packed += flags & STORED_PACKED;
    int fault = put_properties(p, end, limit, out, sum);
    if (UNLIKELY(fault)) return fault;
    sum->rows++;
    return OK;
}

/* Complete messages up to `until_offset`; those from `from_offset` on become rows if they have one
 * of the tags, or if no tags are given. An incomplete message ends the walk. Without `out`,
 * messages are not read. On a fault, the message begins at `end`, and `last_offset` is its offset
 * if that is certain. */
EXPORT int32_t rangeland_decode_stored(const uint8_t *data, int64_t size, int64_t from_offset,
                                       int64_t until_offset, const stored_tags_t *tags,
                                       const stored_t *out, stored_sum_t *result) {
    crc_table_t table;
    stored_sum_t sum = {0};
    int fault = OK;
    sum.last_offset = -1;
    if (out) {
        fill_crc_table(table);
        set_all_bits(out->key_valid, out->row_capacity);
        set_all_bits(out->list_valid, out->row_capacity);
        set_all_bits(out->timestamp_valid, out->row_capacity);
        set_all_bits(out->born_valid, out->row_capacity);
        set_all_bits(out->header_value_valid, out->header_capacity);
        out->key_offsets[0] = out->value_offsets[0] = out->list_offsets[0] = 0;
        out->header_key_offsets[0] = out->header_value_offsets[0] = 0;
    }
    while (sum.end < size) {
        const uint8_t *at = data + sum.end;
        int64_t length, offset;
        fault = stored_length(at, size - sum.end, &length);
        if (fault || !length) break;
        fault = stored_place(at, sum.last_offset, &offset);
        if (fault || offset >= until_offset) break;
        if (UNLIKELY(big32(at + AT_FLAGS) & STORED_INNER_BATCH)) {
            fault = STORED_INNER;
            break;
        }
        if (out && offset >= from_offset) {
            fault = put_stored(at, length, offset, data + size,
                               (const uint32_t(*)[256])table, tags, out, &sum);
            if (fault) {
                sum.last_offset = offset;
                break;
            }
        }
        sum.messages++;
        sum.end += length;
        sum.last_offset = offset;
    }
    *result = sum;
    return fault;
}
