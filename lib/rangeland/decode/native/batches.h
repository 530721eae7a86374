/* Where v2 batches are, and what their headers say.
 *
 * Part of kernel.c, whose rules apply here too. Nothing after a header is read: checksums, codecs
 * and records are left to the code that opens a batch. It must agree with the walk over entries in
 * dialects/kafka/log_entries, which continues where this one ends. */

enum {
    V2_LENGTH_AT = 8,
    V2_PREFIX_BYTES = 12, /* first offset and length */
    V2_MAGIC_AT = 16,
    V2_CRC_AT = 17,
    V2_ATTRIBUTES_AT = 21,
    V2_LAST_DELTA_AT = 23,
    V2_BASE_TIMESTAMP_AT = 27,
    V2_MAX_TIMESTAMP_AT = 35,
    V2_PRODUCER_AT = 43,
    V2_COUNT_AT = 57,
    V2_HEAD_BYTES = 61,
};

/* The columns are named in decode/kafka/batch_table.py. */
typedef struct {
    int64_t position, end, base_offset, last_offset, record_count, producer_id, attributes,
        base_timestamp_ms, max_timestamp_ms, crc;
} batch_t;

typedef struct {
    int64_t batches, end, last_offset, is_all;
} batch_run_t;

INLINE int read_batch(const uint8_t *data, int64_t size, int64_t position, int64_t after,
                      batch_t *batch) {
    const uint8_t *p = data + position;
    int64_t length = (int32_t)big32(p + V2_LENGTH_AT);
    if (length < V2_HEAD_BYTES - V2_PREFIX_BYTES || p[V2_MAGIC_AT] != 2) return 0;
    int64_t base = big64(p), delta = (int32_t)big32(p + V2_LAST_DELTA_AT);
    int64_t count = (int32_t)big32(p + V2_COUNT_AT);
    if (base <= after || delta < 0 || base > LAST_OFFSET - delta) return 0;
    if (count < 0 || count > delta + 1) return 0;
    int64_t end = position + V2_PREFIX_BYTES + length;
    if (size - end >= V2_PREFIX_BYTES && big64(data + end) <= base + delta) return 0;
    batch->position = position;
    batch->end = end;
    batch->base_offset = base;
    batch->last_offset = base + delta;
    batch->record_count = count;
    batch->producer_id = big64(p + V2_PRODUCER_AT);
    batch->attributes = (int16_t)(p[V2_ATTRIBUTES_AT] << 8 | p[V2_ATTRIBUTES_AT + 1]);
    batch->base_timestamp_ms = big64(p + V2_BASE_TIMESTAMP_AT);
    batch->max_timestamp_ms = big64(p + V2_MAX_TIMESTAMP_AT);
    batch->crc = big32(p + V2_CRC_AT);
    return 1;
}

/* Finds complete batches from the byte `begin` on, with offsets that rise above `last_offset` (-1:
 * any) and that the next entry does not contradict: at most `capacity`, or all if `table` is null.
 * `is_all`: no complete entry follows. The values in a header must be possible. */
EXPORT void rangeland_walk_batches(const uint8_t *data, int64_t size, int64_t begin,
                                   int64_t last_offset, int64_t capacity, batch_t *table,
                                   batch_run_t *result) {
    batch_run_t run = {0, begin, last_offset, 0};
    batch_t batch;
    for (;;) {
        int64_t left = size - run.end, length = 0;
        if (left >= V2_PREFIX_BYTES) length = (int32_t)big32(data + run.end + V2_LENGTH_AT);
        run.is_all = left < V2_PREFIX_BYTES ||
                     (length > V2_MAGIC_AT - V2_PREFIX_BYTES && length > left - V2_PREFIX_BYTES);
        if (run.is_all || (table && run.batches == capacity)) break;
        if (!read_batch(data, size, run.end, run.last_offset, &batch)) break;
        if (table) table[run.batches] = batch;
        run.batches++;
        run.end = batch.end;
        run.last_offset = batch.last_offset;
    }
    *result = run;
}
