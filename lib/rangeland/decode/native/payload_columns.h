/* Columns that the payload decoders fill: any Arrow type, as a table in preorder.
 *
 * Part of kernel.c, whose rules apply here too. A column is followed by the columns inside it, up
 * to `end`: the fields of a struct, or the items of a list. A payload that does not fit the schema
 * is taken back out of all columns and becomes a null, just like a payload that is null itself. A
 * payload that finds a column full is taken back too, and the call ends: the caller makes room and
 * continues with that payload. How much memory a payload may take is limited by its length and by
 * LARGEST_PAYLOAD; once all payloads together take `most_taken`, the call ends after the current
 * one. The structs are mirrored in decode/payload/column_buffers.py, the faults in
 * payload_bytes.py. */

enum column_kind {
    BOOL_COLUMN = 1,
    INT32_COLUMN = 2,
    INT64_COLUMN = 3,
    FLOAT_COLUMN = 4,
    DOUBLE_COLUMN = 5,
    DECIMAL_COLUMN = 6,
    BINARY_COLUMN = 7,
    TEXT_COLUMN = 8, /* UTF-8, checked */
    LIST_COLUMN = 9,
    STRUCT_COLUMN = 10,
};

enum payload_fault {
    PAYLOAD_ENDS = 64,
    PAYLOAD_TRAILING = 65,
    NUMBER_TOO_LONG = 66,
    NUMBER_RANGE = 67,
    LENGTH_NEGATIVE = 68,
    LENGTH_PAST_END = 69,
    NOT_UTF8 = 70,
    NOT_BOOLEAN = 71,
    NO_SUCH_SYMBOL = 72,
    NO_SUCH_BRANCH = 73,
    BLOCK_SIZE_WRONG = 74,
    TOO_MANY_EMPTY = 75,
    TOO_MUCH_MEMORY = 76,
    DECIMAL_RANGE = 77,
    UNRESOLVED = 78,
    IMPOSSIBLE_TAG = 79,
    MISPLACED_GROUP = 80,
    REQUIRED_MISSING = 81,
    TOO_DEEP = 82,
    MERGE_TOO_LARGE = 83,
    PAYLOAD_TOO_LARGE = 84,
    OTHER_WIRE_TYPE = 85,
    COLUMN_FULL = 99, /* the caller makes room and calls again */
};

typedef struct {
    int64_t kind, end, cost;       /* cost: what a row takes in memory, in bytes */
    int64_t limit_low, limit_high; /* 10 to the power of a decimal's precision */
    int64_t rows, bytes;
    int64_t row_capacity, byte_capacity;
    uint8_t *valid; /* ones after the last row */
    void *data;     /* values, or offsets */
    uint8_t *text;
} column_t;

/* For each payload: where it is, where its schema begins, and what is wrong with it, as a byte and
 * a place in the schema. Payloads that already have a fault are not looked at. */
typedef struct {
    const uint8_t *data;
    int64_t count;
    const int64_t *starts, *ends, *roots;
    int64_t *faults, *positions, *places;
} payloads_t;

typedef struct {
    column_t *columns;
    int64_t basic_cost; /* what any payload may take */
    int64_t most_taken; /* by all payloads together: the limit */
    int64_t next, taken; /* the next payload, and the memory of those before it */
    int64_t used, most; /* the memory that one payload takes, and may take */
    int64_t full, wanted;
} sink_t;

typedef struct {
    int64_t next, taken;
    int64_t full, wanted; /* the column that is full, and the bytes that it needs: 0 for a row */
} progress_t;

typedef unsigned __int128 wide_t;

enum { COST_PER_BYTE = 2048, LARGEST_PAYLOAD = 1 << 28 };

INLINE int is_with_offsets(const column_t *column) {
    return column->kind >= BINARY_COLUMN && column->kind <= LIST_COLUMN;
}

/* Removes all rows from `rows` on. */
static void take_back(sink_t *sink, int64_t index, int64_t rows) {
    column_t *column = &sink->columns[index];
    for (int64_t row = rows; row < column->rows; row++) json_put_bit(column->valid, row, 1);
    column->rows = rows;
    int64_t inside = is_with_offsets(column) ? ((int32_t *)column->data)[rows] : rows;
    if (column->kind == BINARY_COLUMN || column->kind == TEXT_COLUMN) column->bytes = inside;
    for (int64_t child = index + 1; child < column->end; child = sink->columns[child].end)
        take_back(sink, child, inside);
}

static int too_much(const sink_t *sink) {
    return sink->most == LARGEST_PAYLOAD ? PAYLOAD_TOO_LARGE : TOO_MUCH_MEMORY;
}

static int column_full(sink_t *sink, const column_t *column, int64_t wanted) {
    sink->full = column - sink->columns;
    sink->wanted = wanted;
    return COLUMN_FULL;
}

/* The next row of a column, which the caller writes. */
INLINE int next_row(sink_t *sink, column_t *column, int64_t *row) {
    sink->used += column->cost;
    if (UNLIKELY(sink->used > sink->most)) return too_much(sink);
    if (UNLIKELY(column->rows >= column->row_capacity)) return column_full(sink, column, 0);
    *row = column->rows++;
    return OK;
}

INLINE int put_number(sink_t *sink, column_t *column, int64_t value) {
    int64_t row;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault)) return fault;
    switch (column->kind) {
    case BOOL_COLUMN: json_put_bit(column->data, row, value != 0); break;
    case INT32_COLUMN: ((int32_t *)column->data)[row] = (int32_t)value; break;
    case INT64_COLUMN: ((int64_t *)column->data)[row] = value; break;
    case FLOAT_COLUMN: ((float *)column->data)[row] = (float)value; break;
    case DOUBLE_COLUMN: ((double *)column->data)[row] = (double)value; break;
    case DECIMAL_COLUMN: /* of an unsigned number */
        ((int64_t *)column->data)[2 * row] = value;
        ((int64_t *)column->data)[2 * row + 1] = 0;
        break;
    default: return CAPACITY;
    }
    return OK;
}

INLINE int put_double(sink_t *sink, column_t *column, double value) {
    int64_t row;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault)) return fault;
    if (column->kind == FLOAT_COLUMN)
        ((float *)column->data)[row] = (float)value;
    else
        ((double *)column->data)[row] = value;
    return OK;
}

/* Puts a null into a column and into all fields inside it. */
static int put_null(sink_t *sink, int64_t index) {
    int64_t end = sink->columns[index].end;
    while (index < end) {
        column_t *column = &sink->columns[index];
        int64_t row;
        int fault = next_row(sink, column, &row);
        if (UNLIKELY(fault)) return fault;
        int is_list = column->kind == LIST_COLUMN;
        clear_bit(column->valid, row);
        switch (column->kind) {
        case BOOL_COLUMN: json_put_bit(column->data, row, 0); break;
        case INT32_COLUMN:
        case FLOAT_COLUMN: ((int32_t *)column->data)[row] = 0; break;
        case INT64_COLUMN:
        case DOUBLE_COLUMN: ((int64_t *)column->data)[row] = 0; break;
        case DECIMAL_COLUMN:
            ((int64_t *)column->data)[2 * row] = ((int64_t *)column->data)[2 * row + 1] = 0;
            break;
        case BINARY_COLUMN:
        case TEXT_COLUMN:
        case LIST_COLUMN:
            ((int32_t *)column->data)[row + 1] = ((int32_t *)column->data)[row];
            break;
        default: break;
        }
        index = is_list ? column->end : index + 1;
    }
    return OK;
}

/* Puts a list whose items have been put already. */
INLINE int put_list(sink_t *sink, int64_t index) {
    column_t *column = &sink->columns[index];
    int64_t row;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault)) return fault;
    ((int32_t *)column->data)[row + 1] = (int32_t)sink->columns[index + 1].rows;
    return OK;
}

INLINE int put_struct(sink_t *sink, column_t *column) {
    int64_t row;
    return next_row(sink, column, &row);
}

INLINE int is_utf8(const uint8_t *at, int64_t length) {
    const uint8_t *end = at + length;
    while (end - at >= 8 && !(json_load8(at) & JSON_HIGHS)) at += 8;
    return json_is_utf8(at, end);
}

/* Puts a big-endian number in two's complement, after checking that it has no more digits than its
 * column allows. */
static int put_decimal(sink_t *sink, column_t *column, const uint8_t *from, int64_t length) {
    if (UNLIKELY(length < 1)) return DECIMAL_RANGE;
    uint8_t sign = from[0] & 0x80 ? 0xff : 0;
    while (length > 16 && *from == sign) from++, length--;
    if (UNLIKELY(length > 16 || (sign ^ from[0]) & 0x80)) return DECIMAL_RANGE;
    wide_t value = sign ? ~(wide_t)0 : 0;
    for (int64_t i = 0; i < length; i++) value = value << 8 | from[i];
    wide_t limit = (wide_t)(uint64_t)column->limit_high << 64 | (uint64_t)column->limit_low;
    if (UNLIKELY((sign ? -value : value) >= limit)) return DECIMAL_RANGE;
    int64_t row;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault)) return fault;
    ((uint64_t *)column->data)[2 * row] = (uint64_t)value;
    ((uint64_t *)column->data)[2 * row + 1] = (uint64_t)(value >> 64);
    return OK;
}

enum { UUID_BYTES = 16, UUID_TEXT = 36 };

static void write_uuid(uint8_t *to, const uint8_t *from) {
    static const uint8_t digits[] = "0123456789abcdef";
    for (int i = 0; i < UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *to++ = '-';
        *to++ = digits[from[i] >> 4];
        *to++ = digits[from[i] & 15];
    }
}

/* `room`: how many bytes may be read at `from`. */
INLINE int put_bytes(sink_t *sink, column_t *column, const uint8_t *from, int64_t length,
                     int64_t room) {
    if (column->kind == DECIMAL_COLUMN) return put_decimal(sink, column, from, length);
    if (column->kind == TEXT_COLUMN && UNLIKELY(!is_utf8(from, length))) return NOT_UTF8;
    int64_t row, begin = column->bytes;
    sink->used += length;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault)) return fault;
    if (UNLIKELY(length > column->byte_capacity - begin)) return column_full(sink, column, length);
    column->bytes += length;
    copy_bytes(column->text + begin, from, length, room);
    ((int32_t *)column->data)[row + 1] = (int32_t)column->bytes;
    return OK;
}

/* Reads one payload. If it fails, how far it got is noted in `payloads`. */
typedef int decode_payload_t(void *decoder, const payloads_t *payloads, int64_t at);

/* Decodes all payloads from `sink->next` on, as far as there is memory. `sink` is the decoder's
 * own. */
INLINE int decode_payloads(const payloads_t *payloads, sink_t *sink, void *decoder,
                           decode_payload_t *decode, progress_t *progress) {
    int64_t at = sink->next, taken = sink->taken;
    int fault = OK;
    for (; at < payloads->count && taken < sink->most_taken; at++) {
        int64_t length = payloads->ends[at] - payloads->starts[at];
        int64_t most = sink->basic_cost + COST_PER_BYTE * length;
        sink->used = 0;
        sink->most = most < LARGEST_PAYLOAD ? most : LARGEST_PAYLOAD;
        if (!payloads->faults[at]) {
            fault = decode(decoder, payloads, at);
            if (UNLIKELY(fault)) take_back(sink, 0, at);
            if (UNLIKELY(fault >= COLUMN_FULL)) break;
            if (UNLIKELY(fault)) payloads->faults[at] = fault;
        }
        if (payloads->faults[at]) {
            sink->used = 0;
            sink->most = INT64_MAX;
            fault = put_null(sink, 0);
            if (UNLIKELY(fault)) {
                take_back(sink, 0, at);
                break;
            }
        }
        taken += sink->used;
    }
    *progress = (progress_t){at, taken, sink->full, sink->wanted};
    return fault;
}
