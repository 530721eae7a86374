/* The fast decoder: decodes records of all formats straight into Arrow buffers, in one call.
 *
 * Rules for this file:
 * - For any bytes, it must return what the slow decoder in tests/reference returns: the same rows,
 *   or the same fault at the same payload, record and position. Change that one first, then this.
 * - Plain C11 with GCC's overflow builtins, no Python.h, no libc beyond memcpy: one build
 *   serves every Python version, and on Linux every libc. No state between calls, so any
 *   number of threads may call it at once.
 * - Every read is checked against the record or the payload, every write against a capacity passed
 *   by the caller. Data buffers have SLACK bytes after their capacity, so that short fields can be
 *   copied as 16 bytes at once.
 * - One walk serves both passes: `rows` (all columns except headers, and how much memory the
 *   headers need) and `headers` (called only if some record has headers). The compiler makes two
 *   functions of it.
 * - Struct layouts and FAULT numbers are mirrored in decode/kafka/kernel.py and layout.py; increase
 *   KERNEL_ABI with any change to them or to those in the included files.
 *
 * This file reads the records of v2 batches; batches.h finds the batches, messages.h reads the older
 * formats, sets.h the message sets of Jafka, stored.h the stored messages of RocketMQ. Inside
 * records, the json_*.h files read JSON, and avro.h and protobuf.h read their formats into the
 * columns of payload_columns.h. */

#include <stdint.h>

#define KERNEL_ABI 14
#define SLACK 64

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum fault {
    OK = 0,
    NEGATIVE_RECORD_COUNT = 1,
    BATCH_ENDS = 2,
    VARINT_TOO_LONG = 3,
    NEGATIVE_RECORD_LENGTH = 4,
    RECORD_PAST_BATCH = 5,
    RECORD_TOO_SHORT = 6,
    OFFSET_DELTA_OUTSIDE = 8,
    OFFSET_DELTA_ORDER = 9,
    OFFSET_OVERFLOW = 10,
    NEGATIVE_LENGTH = 12,
    FIELD_PAST_RECORD = 13,
    NEGATIVE_HEADER_COUNT = 14,
    HEADER_KEY_NULL = 15,
    RECORD_TOO_LONG = 16,
    TRAILING_BYTES = 17,
    UNKNOWN_MESSAGE_MAGIC = 18,
    PACKED_MESSAGE = 19,
    WRONG_MESSAGE_CHECKSUM = 20,
    TOO_MANY_HEADERS = 21,
    CAPACITY = 100, /* a mistake of the caller, not of the log */
};

typedef struct {
    const uint8_t *data;
    int64_t length, base_offset, base_timestamp_ms, append_timestamp_ms, log_append, record_count,
        last_offset_delta, form, offset_shift, max_headers;
} payload_t;

typedef struct {
    int64_t row_capacity, byte_capacity;
    int32_t *key_offsets;
    uint8_t *key_data, *key_valid;
    int32_t *value_offsets;
    uint8_t *value_data, *value_valid;
    int64_t *offsets, *timestamps;
    uint8_t *timestamp_valid;
    int32_t *timestamp_types;
} rows_t;

typedef struct {
    int64_t row_capacity, header_capacity, key_capacity, value_capacity;
    int32_t *list_offsets;
    uint8_t *list_valid;
    int32_t *key_offsets;
    uint8_t *key_data;
    int32_t *value_offsets;
    uint8_t *value_data, *value_valid;
} headers_t;

typedef struct {
    int64_t rows, key_bytes, value_bytes, key_nulls, value_nulls;
    int64_t headers, header_key_bytes, header_value_bytes, header_value_nulls, rows_without_headers;
    int64_t keys_beyond_ascii, timestamp_nulls;
    int64_t payload, record, position; /* of the fault */
} result_t;

/* A zigzag varint of at most 32 bits. The cursor moves only on success. */
INLINE int read_varint(const uint8_t **at, const uint8_t *end, int32_t *out, int ends) {
    const uint8_t *p = *at;
    uint32_t raw = 0;
    for (int shift = 0;; shift += 7) {
        if (UNLIKELY(p == end)) return ends;
        uint32_t byte = *p++;
        if (shift == 28 && UNLIKELY(byte > 0x0f)) return VARINT_TOO_LONG;
        raw |= (byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    *out = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    *at = p;
    return OK;
}

INLINE int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *out, int ends) {
    const uint8_t *p = *at;
    uint64_t raw = 0;
    for (int shift = 0;; shift += 7) {
        if (UNLIKELY(p == end)) return ends;
        uint64_t byte = *p++;
        if (shift == 63 && UNLIKELY(byte > 1)) return VARINT_TOO_LONG;
        raw |= (byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    *out = (int64_t)((raw >> 1) ^ (0u - (raw & 1)));
    *at = p;
    return OK;
}

/* A length and the bytes after it: `*length` is -1 for null, `*start` is the first byte. */
INLINE int read_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **start,
                      int32_t *length) {
    const uint8_t *p = *at;
    int fault = read_varint(&p, end, length, RECORD_TOO_SHORT);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(*length < -1)) return NEGATIVE_LENGTH;
    if (UNLIKELY(*length > end - p)) return FIELD_PAST_RECORD;
    *start = p;
    *at = p + (*length > 0 ? *length : 0);
    return OK;
}

/* `room`: how many bytes may be read at `from`; the target always has SLACK bytes after it. */
INLINE void copy_bytes(uint8_t *to, const uint8_t *from, int64_t length, int64_t room) {
    if (length <= 16 && room >= 16)
        __builtin_memcpy(to, from, 16);
    else if (length > 0)
        __builtin_memcpy(to, from, (uint64_t)length);
}

INLINE void clear_bit(uint8_t *bits, int64_t index) {
    bits[index >> 3] &= (uint8_t)~(1u << (index & 7));
}

INLINE void set_all_bits(uint8_t *bits, int64_t count) {
    for (int64_t i = 0; i < (count + 7) / 8; i++) bits[i] = 0xff;
}

/* Whether the time, in microseconds, fits in 64 bits. A producer may write any number of
 * milliseconds, so a time that does not fit becomes null and is not a fault. */
INLINE int as_micros(int64_t ms, int64_t *out) {
    if (UNLIKELY(__builtin_mul_overflow(ms, (int64_t)1000, out))) {
        *out = 0;
        return 0;
    }
    return 1;
}

INLINE int timestamp_us(const payload_t *batch, int64_t delta, int64_t *out) {
    int64_t ms = batch->append_timestamp_ms;
    if (!batch->log_append && __builtin_add_overflow(batch->base_timestamp_ms, delta, &ms)) {
        *out = 0;
        return 0;
    }
    return as_micros(ms, out);
}

INLINE int put_key_and_value(const rows_t *rows, result_t *sum, const payload_t *batch,
                             const uint8_t *key, int32_t key_length, const uint8_t *value,
                             int32_t value_length) {
    const uint8_t *limit = batch->data + batch->length;
    int64_t row = sum->rows;
    if (UNLIKELY(row >= rows->row_capacity)) return CAPACITY;
    if (key_length < 0) {
        clear_bit(rows->key_valid, row);
        sum->key_nulls++;
    } else {
        if (UNLIKELY(sum->key_bytes + key_length > rows->byte_capacity)) return CAPACITY;
        copy_bytes(rows->key_data + sum->key_bytes, key, key_length, limit - key);
        sum->key_bytes += key_length;
    }
    if (value_length < 0) {
        clear_bit(rows->value_valid, row);
        sum->value_nulls++;
    } else {
        if (UNLIKELY(sum->value_bytes + value_length > rows->byte_capacity)) return CAPACITY;
        copy_bytes(rows->value_data + sum->value_bytes, value, value_length, limit - value);
        sum->value_bytes += value_length;
    }
    rows->key_offsets[row + 1] = (int32_t)sum->key_bytes;
    rows->value_offsets[row + 1] = (int32_t)sum->value_bytes;
    return OK;
}

INLINE int put_header(const headers_t *heads, result_t *sum, const uint8_t *key,
                      int32_t key_length, const uint8_t *value, int32_t value_length) {
    int64_t header = sum->headers;
    if (UNLIKELY(header >= heads->header_capacity)) return CAPACITY;
    if (UNLIKELY(sum->header_key_bytes + key_length > heads->key_capacity)) return CAPACITY;
    uint8_t seen = 0;
    uint8_t *to = heads->key_data + sum->header_key_bytes;
    for (int32_t i = 0; i < key_length; i++) {
        to[i] = key[i];
        seen |= key[i];
    }
    sum->keys_beyond_ascii |= seen >> 7;
    if (value_length < 0) {
        clear_bit(heads->value_valid, header);
    } else {
        if (UNLIKELY(sum->header_value_bytes + value_length > heads->value_capacity))
            return CAPACITY;
        copy_bytes(heads->value_data + sum->header_value_bytes, value, value_length, 0);
    }
    return OK;
}

/* Reads all headers of one record, from its header count to the last header's value. */
INLINE int read_headers(const uint8_t **at, const uint8_t *end, const headers_t *heads,
                        int64_t most, result_t *sum) {
    int32_t count, key_length, value_length;
    const uint8_t *key, *value;
    const uint8_t *p = *at;
    int fault = read_varint(&p, end, &count, RECORD_TOO_SHORT);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(count < 0)) return NEGATIVE_HEADER_COUNT;
    if (UNLIKELY(count > most - sum->headers)) return TOO_MANY_HEADERS;
    if (count == 0) sum->rows_without_headers++;
    *at = p;
    for (int32_t i = 0; i < count; i++) {
        const uint8_t *field = p;
        fault = read_varint(&p, end, &key_length, RECORD_TOO_SHORT);
        if (!fault && key_length < 0) fault = HEADER_KEY_NULL;
        if (!fault && key_length > end - p) fault = FIELD_PAST_RECORD;
        if (UNLIKELY(fault)) {
            *at = field;
            return fault;
        }
        key = p;
        p += key_length;
        *at = p;
        fault = read_bytes(&p, end, &value, &value_length);
        if (UNLIKELY(fault)) return fault;
        *at = p;
        if (heads && (fault = put_header(heads, sum, key, key_length, value, value_length)))
            return fault;
        sum->header_key_bytes += key_length;
        if (value_length < 0) sum->header_value_nulls++;
        else sum->header_value_bytes += value_length;
        if (heads) {
            heads->key_offsets[sum->headers + 1] = (int32_t)sum->header_key_bytes;
            heads->value_offsets[sum->headers + 1] = (int32_t)sum->header_value_bytes;
        }
        sum->headers++;
    }
    return OK;
}

/* Reads one record. On a fault, `*at` is where the offending field begins. */
INLINE int read_record(const uint8_t **at, const payload_t *batch, int64_t *last_delta,
                       int64_t from_offset, int64_t until_offset, const rows_t *rows,
                       const headers_t *heads, int64_t most_headers, result_t *sum) {
    const uint8_t *limit = batch->data + batch->length, *p = *at;
    int32_t length, delta, key_length, value_length;
    int64_t timestamp_delta, timestamp, offset;
    const uint8_t *key, *value;
    int fault = read_varint(&p, limit, &length, BATCH_ENDS);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(length < 0)) return NEGATIVE_RECORD_LENGTH;
    if (UNLIKELY(length > limit - p)) return RECORD_PAST_BATCH;
    const uint8_t *end = p + length;

    *at = p;
    if (UNLIKELY(p == end)) return RECORD_TOO_SHORT;
    /* The attribute byte: no attributes are defined, and Kafka's own reader ignores it. */
    *at = ++p;
    if (UNLIKELY(fault = read_varlong(&p, end, &timestamp_delta, RECORD_TOO_SHORT))) return fault;
    *at = p;
    if (UNLIKELY(fault = read_varint(&p, end, &delta, RECORD_TOO_SHORT))) return fault;
    if (UNLIKELY(delta < 0 || delta > batch->last_offset_delta)) return OFFSET_DELTA_OUTSIDE;
    if (UNLIKELY(delta <= *last_delta)) return OFFSET_DELTA_ORDER;
    *last_delta = delta;
    if (UNLIKELY(__builtin_add_overflow(batch->base_offset, (int64_t)delta, &offset)))
        return OFFSET_OVERFLOW;
    *at = end;
    if (offset < from_offset || offset >= until_offset) return OK;

    *at = p;
    if (UNLIKELY(fault = read_bytes(&p, end, &key, &key_length))) return fault;
    *at = p;
    if (UNLIKELY(fault = read_bytes(&p, end, &value, &value_length))) return fault;
    *at = p;
    int64_t row = sum->rows;
    if (rows) {
        fault = put_key_and_value(rows, sum, batch, key, key_length, value, value_length);
        if (UNLIKELY(fault)) return fault;
        rows->offsets[row] = offset;
        if (UNLIKELY(!timestamp_us(batch, timestamp_delta, &timestamp))) {
            clear_bit(rows->timestamp_valid, row);
            sum->timestamp_nulls++;
        }
        rows->timestamps[row] = timestamp;
        rows->timestamp_types[row] = (int32_t)batch->log_append;
    }
    if (heads && UNLIKELY(row >= heads->row_capacity)) return CAPACITY;
    int64_t headers_before = sum->headers;
    if (UNLIKELY(fault = read_headers(at, end, heads, most_headers, sum))) return fault;
    if (heads) {
        heads->list_offsets[row + 1] = (int32_t)sum->headers;
        if (sum->headers == headers_before) clear_bit(heads->list_valid, row);
    }
    if (UNLIKELY(*at != end)) return RECORD_TOO_LONG;
    sum->rows++;
    return OK;
}

#include "crc32.h"
#include "messages.h"
#include "batches.h"

INLINE int walk(const payload_t *payloads, int64_t count, int64_t from_offset,
                int64_t until_offset, const rows_t *rows, const headers_t *heads,
                result_t *sum) {
    crc_table_t crc;
    int has_crc = 0;
    for (int64_t i = 0; i < count; i++) {
        const payload_t *batch = &payloads[i];
        if (batch->form != BATCH && rows && !has_crc) {
            fill_crc_table(crc);
            has_crc = 1;
        }
        const uint8_t *at = batch->data;
        int64_t record = 0, last_delta = -1;
        int64_t most_headers = sum->headers + batch->max_headers;
        int fault = batch->record_count < 0 ? NEGATIVE_RECORD_COUNT : OK;
        for (; !fault && record < batch->record_count; record++) {
            fault = batch->form == BATCH
                        ? read_record(&at, batch, &last_delta, from_offset, until_offset, rows,
                                      heads, most_headers, sum)
                        : read_message(&at, batch, &last_delta, from_offset, until_offset,
                                       (const uint32_t(*)[256])crc, rows, heads, sum);
            if (UNLIKELY(fault)) break;
        }
        if (!fault && at != batch->data + batch->length) fault = TRAILING_BYTES;
        if (UNLIKELY(fault)) {
            sum->payload = i;
            sum->record = record;
            sum->position = at - batch->data;
            return fault;
        }
    }
    return OK;
}

EXPORT int32_t rangeland_kernel_abi(void) { return KERNEL_ABI; }

/* Fills all columns except headers, which are only counted and measured. */
EXPORT int32_t rangeland_decode_rows(const payload_t *payloads, int64_t count,
                                     int64_t from_offset, int64_t until_offset,
                                     const rows_t *rows, result_t *result) {
    result_t sum = {0};
    set_all_bits(rows->key_valid, rows->row_capacity);
    set_all_bits(rows->value_valid, rows->row_capacity);
    set_all_bits(rows->timestamp_valid, rows->row_capacity);
    rows->key_offsets[0] = rows->value_offsets[0] = 0;
    int32_t fault = walk(payloads, count, from_offset, until_offset, rows, 0, &sum);
    *result = sum;
    return fault;
}

/* Fills the headers column, within the capacities that the pass over the rows has counted. */
EXPORT int32_t rangeland_decode_headers(const payload_t *payloads, int64_t count,
                                        int64_t from_offset, int64_t until_offset,
                                        const headers_t *heads, result_t *result) {
    result_t sum = {0};
    set_all_bits(heads->list_valid, heads->row_capacity);
    set_all_bits(heads->value_valid, heads->header_capacity);
    heads->list_offsets[0] = heads->key_offsets[0] = heads->value_offsets[0] = 0;
    int32_t fault = walk(payloads, count, from_offset, until_offset, 0, heads, &sum);
    *result = sum;
    return fault;
}

#include "sets.h"
#include "stored.h"
#include "json_text.h"
#include "json_values.h"
#include "json_times.h"
#include "json_nested.h"
#include "json_records.h"
#include "payload_columns.h"
#include "avro.h"
#include "protobuf.h"
