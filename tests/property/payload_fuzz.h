/* The decoders of payloads under the fuzzer; the tables of their schemas are in payload_tables.h, which
 * test_kernel_fuzz.py writes. Columns are exactly as large as the first pass has counted. */

#include "payload_tables.h"

enum { MOST_PAYLOADS = 4 };

typedef struct {
    int64_t starts[MOST_PAYLOADS], ends[MOST_PAYLOADS], roots[MOST_PAYLOADS];
    int64_t faults[MOST_PAYLOADS], positions[MOST_PAYLOADS], places[MOST_PAYLOADS];
    payloads_t table;
} cut_t;

/* The data as one to four payloads in a row. */
static void cut_payloads(cut_t *cut, const uint8_t *data, int64_t size) {
    int64_t count = next() % 2 ? 1 : 1 + (int64_t)(next() % MOST_PAYLOADS), at = 0;
    memset(cut, 0, sizeof *cut);
    for (int64_t i = 0; i < count; i++) {
        cut->starts[i] = at;
        at = i == count - 1 ? size : at + (int64_t)(next() % (uint64_t)(size - at + 1));
        cut->ends[i] = at;
    }
    cut->table = (payloads_t){data, count, cut->starts, cut->ends, cut->roots,
                              cut->faults, cut->positions, cut->places};
}

static void allocate_columns(column_t *columns, int64_t count) {
    static const int64_t widths[] = {0, 0, 4, 8, 4, 8, 16, 4, 4, 4, 0};
    for (int64_t i = 0; i < count; i++) {
        column_t *column = &columns[i];
        int has_offsets = column->kind >= BINARY_COLUMN && column->kind <= LIST_COLUMN;
        int64_t size = (column->rows + has_offsets) * widths[column->kind];
        column->row_capacity = column->rows;
        column->byte_capacity = column->bytes;
        column->valid = room(column->rows / 8 + 1);
        column->data = room(column->kind == BOOL_COLUMN ? column->rows / 8 + 1 : size);
        column->text = room(column->bytes + SLACK);
    }
}

static int32_t decode_once(int is_avro, const cut_t *cut, sink_t *sink, int64_t *decoded) {
    if (is_avro)
        return rangeland_decode_avro(&cut->table, (const avro_node_t *)avro_nodes, avro_children,
                                     avro_constants, sink, decoded);
    int64_t longest = 0;
    for (int64_t i = 0; i < cut->table.count; i++)
        if (cut->ends[i] - cut->starts[i] > longest) longest = cut->ends[i] - cut->starts[i];
    proto_program_t program = {(const proto_message_t *)proto_messages,
                               (const proto_field_t *)proto_fields, proto_children,
                               room(PROTO_FIELD_COUNT * (int64_t)sizeof(proto_slot_t)),
                               room(8 * PROTO_ONEOF_COUNT + 8), room(4 * longest + 8),
                               4 * longest + 8};
    memset(program.slots, 0, PROTO_FIELD_COUNT * sizeof(proto_slot_t));
    memset(program.cases, 0, 8 * PROTO_ONEOF_COUNT + 8);
    int32_t fault = rangeland_decode_protobuf(&cut->table, &program, sink, decoded);
    free(program.slots), free(program.cases), free(program.spare);
    return fault;
}

static void decode_columns(const uint8_t *data, int64_t size, int is_avro) {
    int64_t bytes = is_avro ? sizeof avro_columns : sizeof proto_columns, counted, filled;
    column_t *columns = room(bytes);
    memcpy(columns, is_avro ? avro_columns : proto_columns, (uint64_t)bytes);
    int64_t count = bytes / (int64_t)sizeof(column_t);
    cut_t cut;
    cut_payloads(&cut, data, size);
    for (int64_t i = 0; i < cut.table.count; i++) cut.roots[i] = is_avro ? AVRO_ROOT : 0;
    sink_t sink = {columns, count, 0, room(count * (int64_t)sizeof(column_mark_t)), 0, 0};
    if (decode_once(is_avro, &cut, &sink, &counted)) abort();
    if (columns[0].rows != cut.table.count) abort();
    allocate_columns(columns, count);
    sink.is_filling = 1;
    if (decode_once(is_avro, &cut, &sink, &filled) || counted != filled) abort();
    for (int64_t i = 0; i < count; i++) {
        if (columns[i].rows != columns[i].row_capacity) abort();
        free(columns[i].valid), free(columns[i].data), free(columns[i].text);
    }
    free(columns), free(sink.marks);
}

static int has_offsets(const json_node_t *node) {
    return node->kind >= JSON_LIST || node->kind == JSON_STRING || node->kind == JSON_BINARY;
}

/* A column of JSON with room for so many items and bytes; what it holds is kept. */
static void make_room(json_node_t *node, int64_t items, int64_t size) {
    int64_t width = has_offsets(node) ? 4 : node->width;
    node->valid = realloc(node->valid, (uint64_t)(items / 8 + 1));
    node->values = realloc(node->values, (uint64_t)(width ? (items + 1) * width : items / 8 + 1));
    node->data = realloc(node->data, (uint64_t)(size + SLACK));
    node->capacity = items;
    node->byte_capacity = size;
}

static void decode_json(const uint8_t *data, int64_t size) {
    cut_t cut;
    cut_payloads(&cut, data, size);
    int64_t all = sizeof json_nodes / (int64_t)sizeof(json_node_t), offsets[MOST_PAYLOADS + 1] = {0};
    int64_t faults[4 * MOST_PAYLOADS];
    json_node_t *nodes = room(sizeof json_nodes);
    memcpy(nodes, json_nodes, sizeof json_nodes);
    for (int64_t i = 0; i < all; i++) {
        make_room(&nodes[i], 1 + (int64_t)(next() % 4), (int64_t)(next() % 16));
        if (has_offsets(&nodes[i])) memset(nodes[i].values, 0, 4);
    }
    for (int64_t i = 0; i < cut.table.count; i++) offsets[i + 1] = cut.ends[i];
    json_call_t call = {data, offsets, 0, 0, cut.table.count, size, nodes, all - 2, json_names,
                        json_slots, json_powers, room(size + SLACK), room(4 * (size + SLACK)),
                        (int64_t)(next() % 3), edge(), faults};
    json_result_t result;
    int64_t found = 0;
    while (rangeland_decode_json(&call, &result) == JSON_GROW) {
        json_node_t *full = &nodes[result.grow_node];
        int64_t items = full->capacity, wanted = full->byte_capacity + result.grow_bytes;
        make_room(full, result.grow_bytes ? items : items + 1 + (int64_t)(next() % 8),
                  result.grow_bytes ? wanted : full->byte_capacity);
        found += result.faults;
        call.row = result.row;
        call.faults = faults + 4 * found;
    }
    if (result.row != call.rows || nodes[0].length != call.rows) abort();
    for (int64_t i = 0; i < all; i++) free(nodes[i].valid), free(nodes[i].values), free(nodes[i].data);
    free(nodes), free(call.scratch), free(call.map_slots);
}
