/* A fuzzer of the compiled kernel: bytes of all formats, mutated by a seed, under sanitizers.
 *
 * Built by test_kernel_fuzz.py together with kernel.c, with the address and undefined-behaviour
 * sanitizers; any report ends it. A file of the corpus is one byte for what is called, and data.
 * Buffers are exactly as large as the library makes them, so that a write past a capacity is seen. */

#include "kernel.c"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 14, KINDS = 10 };

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int64_t edge(void) {
    static const int64_t edges[] = {0,         1,         -1,        INT32_MAX, INT32_MIN,
                                    INT64_MAX, INT64_MIN, INT64_MAX - 1, 255, 1 << 20};
    return next() % 2 ? edges[next() % 10] : (int64_t)(next() % 400) - 100;
}

static void *room(int64_t size) { return malloc((uint64_t)(size > 0 ? size : 1)); }

static void decode_rows(const uint8_t *data, int64_t size, int form) {
    int64_t count = next() % 8 ? (int64_t)(next() % 40) : edge();
    payload_t one = {data, size, edge(), edge(), edge(), next() % 2, count, edge(), form,
                     form == BATCH ? 0 : edge(), (int64_t)(next() % 100)};
    if (next() % 2) one.base_offset = 0, one.last_offset_delta = 1 << 20;
    int64_t rows = count < size / 7 ? count : size / 7;
    if (rows < 0) rows = 0;
    rows_t out = {rows, size, room(4 * rows + 4), room(size + SLACK), room(rows / 8 + 1),
                  room(4 * rows + 4), room(size + SLACK), room(rows / 8 + 1), room(8 * rows),
                  room(8 * rows), room(rows / 8 + 1), room(4 * rows)};
    int64_t from = next() % 2 ? INT64_MIN : edge(), until = next() % 2 ? INT64_MAX : edge();
    result_t sum;
    if (!rangeland_decode_rows(&one, 1, from, until, &out, &sum)) {
        headers_t heads = {sum.rows, sum.headers, sum.header_key_bytes, sum.header_value_bytes,
                           room(4 * sum.rows + 4), room(sum.rows / 8 + 1),
                           room(4 * sum.headers + 4), room(sum.header_key_bytes),
                           room(4 * sum.headers + 4), room(sum.header_value_bytes + SLACK),
                           room(sum.headers / 8 + 1)};
        result_t again;
        int fault = rangeland_decode_headers(&one, 1, from, until, &heads, &again);
        if (fault || again.headers != sum.headers) abort();
        free(heads.list_offsets), free(heads.list_valid), free(heads.key_offsets);
        free(heads.key_data), free(heads.value_offsets), free(heads.value_data);
        free(heads.value_valid);
    }
    free(out.key_offsets), free(out.key_data), free(out.key_valid), free(out.value_offsets);
    free(out.value_data), free(out.value_valid), free(out.offsets), free(out.timestamps);
    free(out.timestamp_valid), free(out.timestamp_types);
}

static void decode_stored(const uint8_t *data, int64_t size) {
    int64_t rows = size / STORED_SMALLEST, headers = size / 2 + 1, bits = rows / 8 + 1;
    stored_t out = {rows, headers, size, room(4 * rows + 4), room(size + SLACK), room(bits),
                    room(4 * rows + 4), room(size + SLACK), room(8 * rows), room(8 * rows),
                    room(8 * rows), room(bits), room(bits), room(rows), room(4 * rows + 4),
                    room(bits), room(4 * headers + 4), room(size + SLACK), room(4 * headers + 4),
                    room(size + SLACK), room(headers / 8 + 1)};
    const uint8_t *names = (const uint8_t *)"AB";
    int32_t ends[] = {1, 2};
    stored_tags_t tags = {(int64_t)(next() % 3), names, ends};
    stored_sum_t sum;
    rangeland_decode_stored(data, size, 0, INT64_MAX, 0, 0, &sum);
    rangeland_decode_stored(data, size, edge() & INT64_MAX, INT64_MAX, &tags, &out, &sum);
    free(out.key_offsets), free(out.key_data), free(out.key_valid), free(out.value_offsets);
    free(out.value_data), free(out.offsets), free(out.timestamps), free(out.born);
    free(out.timestamp_valid), free(out.born_valid), free(out.codecs), free(out.list_offsets);
    free(out.list_valid), free(out.header_key_offsets), free(out.header_key_data);
    free(out.header_value_offsets), free(out.header_value_data), free(out.header_value_valid);
}

static void decode_sets(const uint8_t *data, int64_t size) {
    walked_t walked;
    rangeland_walk_entries(data, size, edge(), (int32_t)(next() % 2), &walked);
    set_t set = {data, size, edge(), next() % 2, (int64_t)(next() % 100)};
    int64_t rows = size / 10;
    messages_t out = {rows, size, room(4 * rows + 4), room(size + SLACK), room(8 * rows),
                      room(4 * rows)};
    decoded_t sum;
    rangeland_decode_sets(&set, 1, &out, &sum);
    free(out.value_offsets), free(out.value_data), free(out.offsets), free(out.positions);
}

#include "payload_fuzz.h"

static void walk_all(const uint8_t *data, int64_t size) {
    run_t run;
    batch_run_t batches;
    batch_t table[4];
    rangeland_walk_messages(data, size, edge(), &run);
    rangeland_walk_batches(data, size, 0, edge(), 4, next() % 2 ? table : 0, &batches);
}

static void run_one(int kind, const uint8_t *bytes, int64_t size) {
    uint8_t *data = room(size); /* of its own, with red zones right behind it */
    memcpy(data, bytes, (uint64_t)size);
    switch (kind % KINDS) {
        case 0: decode_rows(data, size, BATCH); break;
        case 1: decode_rows(data, size, PLAIN); break;
        case 2: decode_rows(data, size, PACKED); break;
        case 3: decode_stored(data, size); break;
        case 4: decode_sets(data, size); break;
        case 7: decode_columns(data, size, 1); break;
        case 8: decode_columns(data, size, 0); break;
        case 9: decode_json(data, size); break;
        default: walk_all(data, size);
    }
    free(data);
}

static int64_t mutate(uint8_t *data, int64_t size) {
    for (int64_t n = 1 + (int64_t)(next() % 4); n > 0; n--) {
        int64_t at = size ? (int64_t)(next() % (uint64_t)size) : 0;
        switch (next() % 6) {
            case 0: if (size) data[at] ^= (uint8_t)(1u << next() % 8); break;
            case 1: if (size) data[at] = (uint8_t)next(); break;
            case 2: size = at; break;
            case 3: {
                int64_t value = edge(), width = next() % 2 ? 4 : 8;
                for (int64_t i = 0; i < width && at + i < size; i++)
                    data[at + i] = (uint8_t)((uint64_t)value >> 8 * (width - 1 - i));
                break;
            }
            case 4: {
                int64_t from = size ? (int64_t)(next() % (uint64_t)size) : 0;
                int64_t length = (int64_t)(next() % 64);
                if (from + length > size) length = size - from;
                if (at + length > size) length = size - at;
                memmove(data + at, data + from, (uint64_t)length);
                break;
            }
            default: if (size && size + size <= MOST_BYTES) memcpy(data + size, data, (uint64_t)size), size += size;
        }
    }
    return size;
}

/* kernel_fuzz SEED RUNS FILE... */
int main(int count, char **words) {
    static uint8_t data[MOST_BYTES];
    uint64_t seed = strtoull(words[1], 0, 10);
    int64_t runs = strtoll(words[2], 0, 10);
    for (int64_t run = 0; run < runs; run++) {
        state = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)run * 0xbf58476d1ce4e5b9u;
        if (!state) state = 1;
        FILE *file = fopen(words[3 + next() % (uint64_t)(count - 3)], "rb");
        if (!file) return 2;
        int kind = fgetc(file);
        int64_t size = (int64_t)fread(data, 1, MOST_BYTES / 2, file);
        fclose(file);
        if (run >= count - 3) size = mutate(data, size);
        run_one(next() % 8 ? kind : (int)(next() % KINDS), data, size);
    }
    printf("%lld runs\n", (long long)runs);
    return 0;
}
