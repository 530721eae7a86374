/* Columns that the decoders of payloads fill: any Arrow type, as a table in preorder.
 *
 * Part of kernel.c, whose rules apply here too. A decoder walks its payloads twice: the first pass
 * counts what each column needs and finds the payloads that cannot be decoded; the caller allocates;
 * the second pass writes. What a payload that fails has put is taken back.
 * A column is followed by the columns inside it, up to `end`: the fields of a struct, or the items
 * of a list. What a payload may take in memory is bounded by its length (see `most_slots`).
 * A payload that cannot be decoded is a null, as is one that is null itself.
 * The struct is mirrored in decode/payload/column_buffers.py, the faults in payload_faults.py. */

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
    BAD_TAG = 79,
    BAD_GROUP = 80,
    REQUIRED_MISSING = 81,
    TOO_DEEP = 82,
    MERGE_TOO_LARGE = 83,
};

typedef struct {
    int64_t kind, end, limit_low, limit_high; /* limit: 10 to the power of a decimal's precision */
    int64_t rows, bytes, nulls;
    int64_t row_capacity, byte_capacity;
    uint8_t *valid;
    void *data; /* values, or offsets */
    uint8_t *text;
} column_t;

typedef struct {
    int64_t rows, bytes, nulls;
} column_mark_t;

/* For each payload: where it is, where its schema begins, and what is wrong with it: the byte and
 * the place in the schema. Those that have a fault to begin with are not looked at. */
typedef struct {
    const uint8_t *data;
    int64_t count;
    const int64_t *starts, *ends, *roots;
    int64_t *faults, *positions, *places;
} payloads_t;

typedef struct {
    column_t *columns;
    int64_t column_count, is_filling;
    column_mark_t *marks;
    int64_t slots, most_slots;
} sink_t;

typedef unsigned __int128 wide_t;

enum { SLOTS_PER_BYTE = 256, SLOTS_AT_LEAST = 1024, BYTES_PER_SLOT = 64 };

INLINE void begin_payload(sink_t *sink, int64_t length) {
    sink->slots = 0;
    sink->most_slots = SLOTS_AT_LEAST + 2 * sink->column_count + SLOTS_PER_BYTE * length;
    if (sink->is_filling) return;
    for (int64_t i = 0; i < sink->column_count; i++) {
        const column_t *column = &sink->columns[i];
        sink->marks[i] = (column_mark_t){column->rows, column->bytes, column->nulls};
    }
}

/* Nothing remains of what the payload has put so far. */
static void take_back(sink_t *sink) {
    for (int64_t i = 0; i < sink->column_count; i++) {
        column_t *column = &sink->columns[i];
        column->rows = sink->marks[i].rows;
        column->bytes = sink->marks[i].bytes;
        column->nulls = sink->marks[i].nulls;
    }
}

/* Before the second pass. */
static void begin_filling(sink_t *sink) {
    for (int64_t i = 0; i < sink->column_count; i++) {
        column_t *column = &sink->columns[i];
        column->rows = column->bytes = column->nulls = 0;
        set_all_bits(column->valid, column->row_capacity);
        if (column->kind == BOOL_COLUMN) {
            uint8_t *bits = column->data;
            for (int64_t at = 0; at < (column->row_capacity + 7) / 8; at++) bits[at] = 0;
        }
        if (column->kind >= BINARY_COLUMN && column->kind <= LIST_COLUMN)
            ((int32_t *)column->data)[0] = 0;
    }
}

/* The next row of a column, which the caller then writes if the pass is the second. */
INLINE int next_row(sink_t *sink, column_t *column, int64_t *row) {
    *row = column->rows++;
    if (UNLIKELY(++sink->slots > sink->most_slots)) return TOO_MUCH_MEMORY;
    if (sink->is_filling && UNLIKELY(*row >= column->row_capacity)) return CAPACITY;
    return OK;
}

INLINE int put_number(sink_t *sink, column_t *column, int64_t value) {
    int64_t row;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault) || !sink->is_filling) return fault;
    switch (column->kind) {
    case BOOL_COLUMN:
        if (value) ((uint8_t *)column->data)[row >> 3] |= (uint8_t)(1u << (row & 7));
        break;
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
    if (UNLIKELY(fault) || !sink->is_filling) return fault;
    if (column->kind == FLOAT_COLUMN)
        ((float *)column->data)[row] = (float)value;
    else
        ((double *)column->data)[row] = value;
    return OK;
}

/* A null in a column and in all fields inside it. */
static int put_null(sink_t *sink, int64_t index) {
    int64_t end = sink->columns[index].end;
    while (index < end) {
        column_t *column = &sink->columns[index];
        int64_t row;
        int fault = next_row(sink, column, &row);
        if (UNLIKELY(fault)) return fault;
        column->nulls++;
        int is_list = column->kind == LIST_COLUMN;
        if (sink->is_filling) {
            clear_bit(column->valid, row);
            switch (column->kind) {
            case INT32_COLUMN:
            case FLOAT_COLUMN: ((int32_t *)column->data)[row] = 0; break;
            case INT64_COLUMN:
            case DOUBLE_COLUMN: ((int64_t *)column->data)[row] = 0; break;
            case DECIMAL_COLUMN:
                ((int64_t *)column->data)[2 * row] = ((int64_t *)column->data)[2 * row + 1] = 0;
                break;
            case BINARY_COLUMN:
            case TEXT_COLUMN: ((int32_t *)column->data)[row + 1] = (int32_t)column->bytes; break;
            case LIST_COLUMN:
                ((int32_t *)column->data)[row + 1] = (int32_t)sink->columns[index + 1].rows;
                break;
            default: break;
            }
        }
        index = is_list ? column->end : index + 1;
    }
    return OK;
}

/* A list whose items have been put already. */
INLINE int put_list(sink_t *sink, int64_t index) {
    column_t *column = &sink->columns[index];
    int64_t row;
    int fault = next_row(sink, column, &row);
    if (UNLIKELY(fault) || !sink->is_filling) return fault;
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

/* A big-endian number of two's complement, and that it has no more digits than its column. */
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
    if (UNLIKELY(fault) || !sink->is_filling) return fault;
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
    if (column->kind == TEXT_COLUMN && !sink->is_filling && UNLIKELY(!is_utf8(from, length)))
        return NOT_UTF8;
    int64_t row, begin = column->bytes;
    sink->slots += length / BYTES_PER_SLOT; /* of a default, which is not in the payload */
    int fault = next_row(sink, column, &row);
    column->bytes += length;
    if (UNLIKELY(fault) || !sink->is_filling) return fault;
    if (UNLIKELY(column->bytes > column->byte_capacity)) return CAPACITY;
    copy_bytes(column->text + begin, from, length, room);
    ((int32_t *)column->data)[row + 1] = (int32_t)column->bytes;
    return OK;
}
