/* JSON arrays and objects, appended to the columns of a schema, and the text of fields that the
 * schema lacks.
 *
 * Part of kernel.c, whose rules apply here too. The recursion is as deep as the schema, whose depth
 * is limited where it is made. */

/* What is open around a value that may contain unknown fields; needed for the text of rescued
 * fields. */
typedef struct {
    const uint8_t *label; /* its name in the enclosing object, with quotes */
    int64_t label_length, index, count;
    int is_array, is_open;
} json_level_t;

typedef struct {
    json_state_t s;
    int64_t unknown; /* what to do about unknown fields: JSON_DROP ... */
    json_level_t levels[JSON_MAX_DEPTH + 1];
} json_reader_t;

enum { JSON_DROP = 0, JSON_FAIL = 1, JSON_KEEP = 2 };

static int json_value(json_reader_t *r, json_node_t *node);

INLINE uint64_t json_mix(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t json_hash(const uint8_t *p, int64_t length, uint64_t seed) {
    uint64_t hash = seed ^ (uint64_t)length, word;
    for (; length >= 8; p += 8, length -= 8)
        hash = json_mix(hash ^ json_load8(p), 0x9e3779b97f4a7c15ull);
    for (word = 0; length > 0; length--) word = word << 8 | *p++;
    return json_mix(hash ^ word, 0xd6e8feb86659fd93ull ^ seed);
}

INLINE int json_is_same(const uint8_t *a, const uint8_t *b, int64_t length) {
    for (; length >= 8; a += 8, b += 8, length -= 8)
        if (json_load8(a) != json_load8(b)) return 0;
    for (; length > 0; length--)
        if (*a++ != *b++) return 0;
    return 1;
}

/* --- Rescued text --- */

static int json_keep_text(json_reader_t *r, const void *text, int64_t length) {
    json_node_t *kept = r->s.rescued;
    int fault = json_reserve_bytes(&r->s, kept, length);
    if (fault) return fault;
    __builtin_memcpy(kept->data + kept->bytes, text, (uint64_t)length);
    kept->bytes += length;
    return OK;
}

/* Begins a member of an open level: padding and comma, then the name. */
static int json_keep_member(json_reader_t *r, json_level_t *in, const json_level_t *member) {
    int fault = OK;
    for (; !fault && in->is_array && in->count < member->index; in->count++)
        fault = in->count ? json_keep_text(r, ",{}", 3) : json_keep_text(r, "{}", 2);
    if (!fault && in->count++) fault = json_keep_text(r, ",", 1);
    if (fault || in->is_array) return fault;
    fault = json_keep_text(r, member->label, member->label_length);
    return fault ? fault : json_keep_text(r, ":", 1);
}

/* Keeps an unknown field of the object at the current depth; the field has just been skipped. */
static int json_keep_field(json_reader_t *r, const json_level_t *field) {
    int64_t depth = r->s.text.depth;
    int fault = OK;
    for (int64_t i = 1; i <= depth && !fault; i++) {
        json_level_t *level = &r->levels[i];
        if (level->is_open) continue;
        if (i > 1) fault = json_keep_member(r, &r->levels[i - 1], level);
        if (!fault) fault = json_keep_text(r, level->is_array ? "[" : "{", 1);
        level->is_open = 1;
    }
    if (!fault) fault = json_keep_member(r, &r->levels[depth], field);
    const uint8_t *value = field->label + field->index;
    return fault ? fault : json_keep_text(r, value, r->s.text.p - value);
}

/* --- Arrays and objects --- */

static int json_enter(json_reader_t *r, int is_array) {
    if (UNLIKELY(r->s.text.depth == JSON_MAX_DEPTH)) return JSON_TOO_DEEP;
    json_level_t *level = &r->levels[++r->s.text.depth];
    level->count = level->is_open = 0;
    level->is_array = is_array;
    r->s.text.p++;
    json_skip_space(&r->s.text);
    return r->s.text.p == r->s.text.end ? JSON_ENDS : OK;
}

static int json_leave(json_reader_t *r) {
    json_level_t *level = &r->levels[r->s.text.depth--];
    r->s.text.p++;
    return level->is_open ? json_keep_text(r, level->is_array ? "]" : "}", 1) : OK;
}

/* After a member: 1 if another follows, 0 at the end, which is not consumed. */
INLINE int json_goes_on(json_text_t *t, uint8_t closing, int *goes_on) {
    json_skip_space(t);
    if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
    *goes_on = *t->p == ',';
    if (!*goes_on) return *t->p == closing ? OK : JSON_SYNTAX;
    t->p++;
    json_skip_space(t);
    return OK;
}

/* A value for a field that is missing, or that is inside a null: null, or a zero that nobody
 * sees. */
static int json_append_null(json_state_t *s, json_node_t *node) {
    int fault = json_reserve(s, node);
    if (fault) return fault;
    switch (node->kind) {
    case JSON_STRUCT:
        for (int64_t i = 0; i < node->children; i++)
            if ((fault = json_append_null(s, &s->nodes[node->first_child + i]))) return fault;
        break;
    case JSON_STRING: case JSON_BINARY: case JSON_LIST: case JSON_MAP:
        ((int32_t *)node->values)[node->length + 1] = ((int32_t *)node->values)[node->length];
        break;
    case JSON_BOOLEAN: json_put_bit(node->values, node->length, 0); break;
    case JSON_DECIMAL_128: __builtin_memset(node->values + 16 * node->length, 0, 16); break;
    default: json_put_integer(node, 0);
    }
    json_finish_item(node, !node->is_nullable);
    return OK;
}

static json_node_t *json_find_field(const json_state_t *s, const json_node_t *node,
                                    const json_string_t *name) {
    const int32_t *slots = s->slots + node->slots;
    uint64_t slot = json_hash(name->begin, name->length, 0);
    for (;; slot++) {
        int32_t child = slots[slot & (uint64_t)node->slot_mask];
        if (child < 0) return 0;
        json_node_t *found = &s->nodes[node->first_child + child];
        if (found->name_length == name->length &&
            json_is_same(s->names + found->name, name->begin, name->length))
            return found;
    }
}

/* At the opening quote of a name: finds the field, or null for an unknown one. The `expected` field
 * is tried first. */
static int json_field(json_state_t *s, const json_node_t *node, const json_node_t *expected,
                      json_node_t **field) {
    json_text_t *t = &s->text;
    json_string_t name;
    if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
    if (UNLIKELY(*t->p != '"')) return JSON_SYNTAX;
    t->p++;
    int64_t length = expected->name_length;
    if (expected->is_plain && length < t->end - t->p && t->p[length] == '"' &&
        json_is_same(s->names + expected->name, t->p, length)) {
        t->p += length + 1;
        *field = &s->nodes[expected - s->nodes];
        return OK;
    }
    int fault = json_read_string(t, &name);
    if (!fault) *field = json_find_field(s, node, &name);
    return fault;
}

static int json_unknown_field(json_reader_t *r, const uint8_t *label, int64_t label_length) {
    json_text_t *t = &r->s.text;
    if (r->unknown == JSON_FAIL) return t->p = label, JSON_UNKNOWN;
    json_level_t field = {.label = label, .label_length = label_length, .index = t->p - label};
    int fault = json_skip_value(t);
    return fault || r->unknown == JSON_DROP ? fault : json_keep_field(r, &field);
}

static int json_missing_fields(json_state_t *s, const json_node_t *node) {
    for (int64_t i = 0; i < node->children; i++) {
        json_node_t *child = &s->nodes[node->first_child + i];
        if (child->length > node->length) continue;
        s->fault_node = child - s->nodes;
        if (!child->is_nullable) return JSON_MISSING;
        int fault = json_append_null(s, child);
        if (fault) return fault;
    }
    return OK;
}

static int json_struct(json_reader_t *r, json_node_t *node) {
    json_state_t *s = &r->s;
    json_text_t *t = &s->text;
    int64_t seen = 0, next = 0;
    int fault = json_enter(r, 0);
    int goes_on = !fault && *t->p != '}';
    while (!fault && goes_on) {
        const uint8_t *label = t->p;
        json_node_t *first = &s->nodes[node->first_child], *field = 0;
        if ((fault = json_field(s, node, first + next, &field))) return fault;
        int64_t label_length = t->p - label;
        if ((fault = json_expect(t, ':'))) return fault;
        json_skip_space(t);
        if (!field) {
            s->fault_node = node - s->nodes;
            fault = json_unknown_field(r, label, label_length);
        } else {
            s->fault_node = field - s->nodes;
            if (UNLIKELY(field->length > node->length)) return t->p = label, JSON_REPEATED;
            json_level_t *inside = &r->levels[t->depth < JSON_MAX_DEPTH ? t->depth + 1 : 0];
            inside->label = label;
            inside->label_length = label_length;
            fault = json_value(r, field);
            seen++;
            next = field - first + 1 < node->children ? field - first + 1 : 0;
        }
        if (!fault) fault = json_goes_on(t, '}', &goes_on);
    }
    if (!fault && seen < node->children) fault = json_missing_fields(s, node);
    if (fault) return fault;
    json_finish_item(node, 1);
    return json_leave(r);
}

/* An element counts its values against the record's limit even if it is empty. */
INLINE int json_count_cells(json_state_t *s, const json_node_t *item) {
    s->cells -= item->cells;
    return UNLIKELY(s->cells < 0) ? JSON_TOO_MANY : OK;
}

static int json_list(json_reader_t *r, json_node_t *node) {
    json_state_t *s = &r->s;
    json_text_t *t = &s->text;
    json_node_t *item = &s->nodes[node->first_child];
    int fault = json_enter(r, 1);
    int goes_on = !fault && *t->p != ']';
    for (int64_t index = 0; !fault && goes_on; index++) {
        s->fault_node = item - s->nodes;
        if ((fault = json_count_cells(s, item))) return fault;
        if (t->depth < JSON_MAX_DEPTH) r->levels[t->depth + 1].index = index;
        fault = json_value(r, item);
        if (!fault) fault = json_goes_on(t, ']', &goes_on);
    }
    if (fault) return fault;
    ((int32_t *)node->values)[node->length + 1] = (int32_t)item->length;
    json_finish_item(node, 1);
    return json_leave(r);
}

/* Whether a key occurs twice among those from item `first` on. */
static int json_keys_repeat(const json_reader_t *r, const json_node_t *keys, int64_t first) {
    const int32_t *offsets = (const int32_t *)keys->values;
    int64_t count = keys->length - first;
    uint64_t size = 4;
    while (size < 2 * (uint64_t)count) size *= 2;
    int32_t *slots = r->s.map_slots;
    for (uint64_t i = 0; i < size; i++) slots[i] = -1;
    for (int64_t i = first; i < keys->length; i++) {
        const uint8_t *key = keys->data + offsets[i];
        int64_t length = offsets[i + 1] - offsets[i];
        uint64_t slot = json_hash(key, length, r->s.seed) & (size - 1);
        for (; slots[slot] >= 0; slot = (slot + 1) & (size - 1)) {
            int32_t other = slots[slot];
            if (offsets[other + 1] - offsets[other] == length &&
                json_is_same(keys->data + offsets[other], key, length))
                return 1;
        }
        slots[slot] = (int32_t)i;
    }
    return 0;
}

static int json_map(json_reader_t *r, json_node_t *node) {
    json_state_t *s = &r->s;
    json_text_t *t = &s->text;
    json_node_t *key = &s->nodes[node->first_child], *item = key + 1;
    int64_t first = key->length;
    int fault = json_enter(r, 0);
    int goes_on = !fault && *t->p != '}';
    while (!fault && goes_on) {
        const uint8_t *label = t->p;
        s->fault_node = node - s->nodes;
        if ((fault = json_expect(t, '"')) || (fault = json_reserve(s, key))) return fault;
        if ((fault = json_append_string(s, key))) return fault;
        if (t->depth < JSON_MAX_DEPTH) {
            r->levels[t->depth + 1].label = label;
            r->levels[t->depth + 1].label_length = t->p - label;
        }
        if ((fault = json_expect(t, ':')) || (fault = json_count_cells(s, item))) return fault;
        s->fault_node = item - s->nodes;
        fault = json_value(r, item);
        if (!fault) fault = json_goes_on(t, '}', &goes_on);
    }
    if (fault) return fault;
    s->fault_node = node - s->nodes;
    if (key->length - first > 1 && json_keys_repeat(r, key, first)) return JSON_REPEATED;
    ((int32_t *)node->values)[node->length + 1] = (int32_t)item->length;
    json_finish_item(node, 1);
    return json_leave(r);
}

static int json_value(json_reader_t *r, json_node_t *node) {
    json_state_t *s = &r->s;
    json_text_t *t = &s->text;
    json_skip_space(t);
    if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
    int fault = json_reserve(s, node);
    if (fault) return fault;
    uint8_t c = *t->p;
    int is_number = c == '-' || (uint8_t)(c - '0') < 10;
    if (c == 'n') {
        if ((fault = json_skip_word(t, "null", 4))) return fault;
        return node->is_nullable ? json_append_null(s, node) : JSON_NULL;
    }
    switch (node->kind) {
    case JSON_BOOLEAN:
        if (c != 't' && c != 'f') return JSON_WRONG_TYPE;
        fault = c == 't' ? json_skip_word(t, "true", 4) : json_skip_word(t, "false", 5);
        if (fault) return fault;
        json_put_bit(node->values, node->length, c == 't');
        json_finish_item(node, 1);
        return OK;
    case JSON_INTEGER: return is_number ? json_append_integer(s, node) : JSON_WRONG_TYPE;
    case JSON_REAL: return is_number ? json_append_real(s, node) : JSON_WRONG_TYPE;
    case JSON_DECIMAL_128:
        if (is_number) return json_append_decimal(s, node, 0);
        return c == '"' ? (t->p++, json_append_decimal(s, node, 1)) : JSON_WRONG_TYPE;
    case JSON_STRUCT: return c == '{' ? json_struct(r, node) : JSON_WRONG_TYPE;
    case JSON_LIST: return c == '[' ? json_list(r, node) : JSON_WRONG_TYPE;
    case JSON_MAP: return c == '{' ? json_map(r, node) : JSON_WRONG_TYPE;
    default: break;
    }
    if (c != '"') return JSON_WRONG_TYPE;
    t->p++;
    switch (node->kind) {
    case JSON_STRING: return json_append_string(s, node);
    case JSON_BINARY: return json_append_binary(s, node);
    case JSON_DAY: return json_append_day(s, node);
    default: return json_append_time(s, node);
    }
}
