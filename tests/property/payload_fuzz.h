/* The decoders of payloads under the fuzzer; the tables of their schemas are in payload_tables.h, which
 * test_kernel_fuzz.py writes. Columns begin with little room and grow by little. */

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

/* A column with room for so many rows and bytes; what it holds is kept. */
static void make_column(column_t *column, int64_t rows, int64_t size) {
    static const int64_t widths[] = {0, 0, 4, 8, 4, 8, 16, 4, 4, 4, 0};
    int64_t begin = column->valid ? column->row_capacity / 8 + 1 : 0;
    int64_t values = (rows + is_with_offsets(column)) * widths[column->kind];
    column->valid = realloc(column->valid, (uint64_t)(rows / 8 + 1));
    memset(column->valid + begin, 0xff, (uint64_t)(rows / 8 + 1 - begin));
    int first = !column->data && is_with_offsets(column);
    if (column->kind == BOOL_COLUMN) values = rows / 8 + 1;
    column->data = realloc(column->data, (uint64_t)(values ? values : 1));
    if (first) memset(column->data, 0, 4);
    column->text = realloc(column->text, (uint64_t)(size + SLACK));
    column->row_capacity = rows;
    column->byte_capacity = size;
}

static int32_t decode_once(int is_avro, const cut_t *cut, const sink_t *sink,
                           progress_t *progress) {
    if (is_avro)
        return rangeland_decode_avro(&cut->table, (const avro_node_t *)avro_nodes, avro_children,
                                     avro_constants, sink, progress);
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
    int32_t fault = rangeland_decode_protobuf(&cut->table, &program, sink, progress);
    free(program.slots), free(program.cases), free(program.spare);
    return fault;
}

static void decode_columns(const uint8_t *data, int64_t size, int is_avro) {
    int64_t bytes = is_avro ? sizeof avro_columns : sizeof proto_columns, begin = 0;
    column_t *columns = room(bytes);
    memcpy(columns, is_avro ? avro_columns : proto_columns, (uint64_t)bytes);
    int64_t count = bytes / (int64_t)sizeof(column_t);
    cut_t cut;
    cut_payloads(&cut, data, size);
    for (int64_t i = 0; i < cut.table.count; i++) cut.roots[i] = is_avro ? AVRO_ROOT : 0;
    for (int64_t i = 0; i < count; i++) make_column(&columns[i], next() % 4, next() % 16);
    int64_t most = next() % 4 ? INT64_MAX : 1 + (int64_t)(next() % 2000);
    sink_t sink = {columns, 1 << 14, most, 0, 0, 0, 0, 0, 0};
    progress_t progress;
    int32_t fault;
    while ((fault = decode_once(is_avro, &cut, &sink, &progress)) == COLUMN_FULL) {
        column_t *full = &columns[progress.full];
        int64_t rows = full->row_capacity, wanted = full->byte_capacity + progress.wanted;
        make_column(full, progress.wanted ? rows : rows + 1 + (int64_t)(next() % 8),
                    progress.wanted ? wanted : full->byte_capacity);
        if (progress.next < begin) abort();
        sink.next = begin = progress.next;
        sink.taken = progress.taken;
    }
    if (fault || columns[0].rows != progress.next) abort();
    if (progress.next < cut.table.count && (most == INT64_MAX || !progress.next)) abort();
    for (int64_t i = 0; i < count; i++)
        free(columns[i].valid), free(columns[i].data), free(columns[i].text);
    free(columns);
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
                        (int64_t)(next() % 3), edge(), faults, INT64_MAX};
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
