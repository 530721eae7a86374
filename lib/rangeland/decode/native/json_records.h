/* JSON payloads, decoded straight into the columns of a schema, in one call for all of them.
 *
 * Part of kernel.c, whose rules apply here too. A payload that does not fit the schema is taken
 * back out of all columns, and gets a null row and a line in the table of faults. A payload that
 * finds a column full is taken back too, and the call ends: the caller makes room and continues
 * with that payload. The call also ends once the columns take up about `most_taken` bytes, give or
 * take a few payloads. */

typedef struct {
    const uint8_t *payloads;
    const int64_t *offsets;
    const uint8_t *valid; /* a byte for each payload; null if all are valid */
    int64_t row, rows, payload_bytes;
    json_node_t *nodes;
    int64_t node_count; /* after them come one for rescued text and one for undecided numbers */
    const uint8_t *names;
    const int32_t *slots;
    const uint64_t *powers;
    uint8_t *scratch;
    int32_t *map_slots;
    int64_t unknown, seed;
    int64_t *faults; /* row, fault, position, node */
    int64_t most_taken;
} json_call_t;

typedef struct {
    int64_t row, faults, grow_node, grow_bytes;
} json_result_t;

enum { JSON_ROWS_UNSEEN = 64, JSON_BYTES_UNSEEN = 1 << 16 };

/* How much memory all columns take, in bytes. */
static int64_t json_taken(const json_state_t *s) {
    int64_t sum = 0;
    for (const json_node_t *node = s->nodes; node <= s->rescued; node++)
        sum += node->length * (node->width + 1) + node->bytes;
    return sum;
}

/* Takes back all items from `length` on. */
static void json_take_back(json_state_t *s, json_node_t *node, int64_t length) {
    int64_t inside = length;
    node->length = length;
    if (node->kind >= JSON_LIST || node->kind == JSON_STRING || node->kind == JSON_BINARY)
        inside = ((int32_t *)node->values)[length];
    if (node->kind < JSON_STRUCT) node->bytes = inside;
    for (int64_t i = 0; i < node->children; i++)
        json_take_back(s, &s->nodes[node->first_child + i], inside);
}

static int json_row(json_reader_t *r, const uint8_t *payload, int64_t length) {
    json_state_t *s = &r->s;
    json_text_t *t = &s->text;
    json_node_t *root = s->nodes;
    t->p = payload;
    t->end = payload + length;
    t->depth = 0;
    s->fault_node = 0;
    s->cells = JSON_FREE_CELLS + JSON_CELLS_PER_BYTE * length;
    if (s->cells > JSON_MOST_CELLS) s->cells = JSON_MOST_CELLS;
    json_skip_space(t);
    if (t->p == t->end) return JSON_ENDS;
    if (*t->p != '{') return JSON_WRONG_TYPE;
    int fault = json_reserve(s, root);
    if (!fault && r->unknown == JSON_KEEP) fault = json_reserve(s, s->rescued);
    if (!fault) fault = json_struct(r, root);
    if (fault) return fault;
    json_skip_space(t);
    s->fault_node = 0;
    if (t->p < t->end) return JSON_TRAILING;
    json_node_t *kept = s->rescued;
    if (r->unknown != JSON_KEEP) return OK;
    ((int32_t *)kept->values)[kept->length + 1] = (int32_t)kept->bytes;
    json_finish_item(kept, kept->bytes > ((int32_t *)kept->values)[kept->length]);
    return OK;
}

/* Decodes payloads from `row` on. Returns JSON_GROW if a column is full, otherwise 0. */
EXPORT int32_t rangeland_decode_json(const json_call_t *call, json_result_t *result) {
    json_reader_t r = {.unknown = call->unknown};
    json_state_t *s = &r.s;
    json_result_t sum = {0};
    *s = (json_state_t){.nodes = call->nodes,
                        .rescued = call->nodes + call->node_count,
                        .undecided = call->nodes + call->node_count + 1,
                        .names = call->names,
                        .payloads = call->payloads,
                        .slots = call->slots,
                        .powers = call->powers,
                        .map_slots = call->map_slots,
                        .seed = (uint64_t)call->seed};
    s->text.limit = call->payloads + call->payload_bytes;
    s->text.scratch = call->scratch;
    int fault = OK;
    int64_t seen_row = call->row, seen_bytes = call->offsets[call->row];
    for (s->row = call->row; s->row < call->rows; s->row++) {
        if (s->row - seen_row >= JSON_ROWS_UNSEEN ||
            call->offsets[s->row] - seen_bytes >= JSON_BYTES_UNSEEN) {
            if (json_taken(s) >= call->most_taken) break;
            seen_row = s->row;
            seen_bytes = call->offsets[s->row];
        }
        int64_t undecided = s->undecided->length;
        int is_null = call->valid && !call->valid[s->row];
        if (!is_null)
            fault = json_row(&r, call->payloads + call->offsets[s->row],
                             call->offsets[s->row + 1] - call->offsets[s->row]);
        if (is_null || fault) {
            json_take_back(s, s->nodes, s->row);
            if (r.unknown == JSON_KEEP) json_take_back(s, s->rescued, s->row);
            s->undecided->length = undecided;
        }
        if (fault == JSON_GROW) break;
        if (fault) {
            int64_t *line = call->faults + 4 * sum.faults++;
            line[0] = s->row;
            line[1] = fault;
            line[2] = s->text.p - (call->payloads + call->offsets[s->row]);
            line[3] = s->fault_node;
        }
        if (is_null || fault) {
            fault = json_append_null(s, s->nodes);
            if (!fault && r.unknown == JSON_KEEP) fault = json_append_null(s, s->rescued);
            if (fault) { /* full: the row is counted again in the next call */
                json_take_back(s, s->nodes, s->row);
                sum.faults -= !is_null;
                break;
            }
        }
        fault = OK;
    }
    sum.row = s->row;
    sum.grow_node = s->grow_node;
    sum.grow_bytes = s->grow_bytes;
    *result = sum;
    return fault;
}

/* Fills the hash tables of all structs. Their places are known, and they are filled with -1. */
EXPORT int32_t rangeland_json_slots(const json_node_t *nodes, int64_t count, const uint8_t *names,
                                    int32_t *slots, int64_t *filled) {
    *filled = 0;
    for (int64_t i = 0; i < count; i++) {
        const json_node_t *node = &nodes[i];
        for (int64_t child = 0; node->kind == JSON_STRUCT && child < node->children; child++) {
            const json_node_t *field = &nodes[node->first_child + child];
            uint64_t slot = json_hash(names + field->name, field->name_length, 0);
            while (slots[node->slots + (int64_t)(slot & (uint64_t)node->slot_mask)] >= 0) slot++;
            slots[node->slots + (int64_t)(slot & (uint64_t)node->slot_mask)] = (int32_t)child;
            ++*filled;
        }
    }
    return OK;
}
