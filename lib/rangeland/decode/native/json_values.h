/* A single JSON value of a simple type, appended to its column.
 *
 * Part of kernel.c, whose rules apply here too. A node is a field of the schema, an element of an
 * array, or a key or value of a map, together with its columns. The caller makes the table of nodes
 * (its layout is mirrored in decode/payload/json/json_kernel.py) and enlarges the columns: a
 * function that finds one full returns JSON_GROW, the record is taken back, and the call is
 * repeated with more room. */

enum json_kind {
    JSON_BOOLEAN = 0,
    JSON_INTEGER = 1, /* `width` bytes */
    JSON_REAL = 2,
    JSON_DECIMAL_128 = 3,
    JSON_STRING = 4,
    JSON_BINARY = 5,
    JSON_DAY = 6,
    JSON_INSTANT = 7,
    JSON_LOCAL = 8,
    JSON_STRUCT = 9,
    JSON_LIST = 10,
    JSON_MAP = 11,
};

typedef struct {
    int64_t kind, is_nullable, width, precision, scale;
    int64_t first_child, children, cells; /* `cells`: how many values a null takes */
    int64_t name, name_length, is_plain;  /* in the text of all names; plain: needs no escapes */
    int64_t slots, slot_mask;             /* the hash table of a struct's fields */
    int64_t length, bytes;                /* items and bytes written */
    int64_t capacity, byte_capacity;
    uint8_t *valid, *values, *data; /* `values`: numbers, or offsets of items or bytes */
} json_node_t;

/* A number whose digits do not decide between two neighbours: its text is left to the caller to
 * parse. */
typedef struct {
    int64_t node, item, row, begin, length;
} json_undecided_t;

typedef struct {
    json_text_t text;
    json_node_t *nodes, *rescued, *undecided;
    const uint8_t *names, *payloads;
    const int32_t *slots;
    const uint64_t *powers; /* the first 128 bits of 5^-342 ... 5^308 */
    int32_t *map_slots;
    uint64_t seed;
    int64_t row, cells, fault_node, grow_node, grow_bytes;
} json_state_t;

INLINE void json_put_bit(uint8_t *bits, int64_t i, int is_set) {
    uint8_t mask = (uint8_t)(1u << (i & 7));
    bits[i >> 3] = (uint8_t)(is_set ? bits[i >> 3] | mask : bits[i >> 3] & ~mask);
}

static int json_full(json_state_t *s, const json_node_t *node, int64_t bytes) {
    s->grow_node = node - s->nodes;
    s->grow_bytes = bytes;
    return JSON_GROW;
}

INLINE int json_reserve(json_state_t *s, const json_node_t *node) {
    return UNLIKELY(node->length >= node->capacity) ? json_full(s, node, 0) : OK;
}

INLINE int json_reserve_bytes(json_state_t *s, const json_node_t *node, int64_t more) {
    return UNLIKELY(more > node->byte_capacity - node->bytes) ? json_full(s, node, more) : OK;
}

INLINE void json_finish_item(json_node_t *node, int is_valid) {
    json_put_bit(node->valid, node->length, is_valid);
    node->length++;
}

INLINE void json_finish_bytes(json_node_t *node, int64_t length) {
    node->bytes += length;
    ((int32_t *)node->values)[node->length + 1] = (int32_t)node->bytes;
    json_finish_item(node, 1);
}

static int json_append_string(json_state_t *s, json_node_t *node) {
    json_string_t found;
    int fault = json_scan_string(&s->text, &found);
    if (!fault) fault = json_reserve_bytes(s, node, found.length);
    if (fault) return fault;
    uint8_t *to = node->data + node->bytes;
    if (found.has_escapes)
        fault = json_unescape(&found, to, &found.length);
    else
        copy_bytes(to, found.begin, found.length, s->text.limit - found.begin);
    if (!fault) json_finish_bytes(node, found.length);
    return fault;
}

static int json_base64_digit(uint8_t c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Must be padded, with no bits left over, so that each value can be written in only one way. */
static int json_append_binary(json_state_t *s, json_node_t *node) {
    json_string_t found;
    int fault = json_read_string(&s->text, &found);
    if (!fault) fault = json_reserve_bytes(s, node, found.length);
    if (fault) return fault;
    if (found.length % 4) return JSON_BASE64;
    const uint8_t *p = found.begin, *end = p + found.length;
    uint8_t *to = node->data + node->bytes, *begin = to;
    for (; p < end; p += 4) {
        int pads = end - p > 4 || p[3] != '=' ? 0 : p[2] == '=' ? 2 : 1;
        uint32_t word = 0;
        for (int i = 0; i < 4; i++) {
            int digit = i < 4 - pads ? json_base64_digit(p[i]) : 0;
            if (digit < 0) return JSON_BASE64;
            word = word << 6 | (uint32_t)digit;
        }
        if (pads && (word & (pads == 2 ? 0xffff : 0xff))) return JSON_BASE64;
        *to++ = (uint8_t)(word >> 16);
        if (pads < 2) *to++ = (uint8_t)(word >> 8);
        if (pads < 1) *to++ = (uint8_t)word;
    }
    json_finish_bytes(node, to - begin);
    return OK;
}

INLINE void json_put_integer(json_node_t *node, int64_t value) {
    switch (node->width) {
    case 1: ((int8_t *)node->values)[node->length] = (int8_t)value; break;
    case 2: ((int16_t *)node->values)[node->length] = (int16_t)value; break;
    case 4: ((int32_t *)node->values)[node->length] = (int32_t)value; break;
    default: ((int64_t *)node->values)[node->length] = value;
    }
}

static int json_append_integer(json_state_t *s, json_node_t *node) {
    json_number_t n;
    int fault = json_read_number(&s->text.p, s->text.end, &n);
    if (fault) return fault;
    if (!n.is_whole) return JSON_NOT_WHOLE;
    uint64_t limit = 1ull << (node->width * 8 - 1);
    if (n.count > 19 || n.digits > limit - !n.is_negative) return JSON_OUT_OF_RANGE;
    json_put_integer(node, (int64_t)(n.is_negative ? 0 - n.digits : n.digits));
    json_finish_item(node, 1);
    return OK;
}

/* A binary format for real numbers. Only for powers of ten between `least_even` and `most_even` can
 * the digits of a number lie exactly halfway between two of them. */
typedef struct {
    int mantissa, bias; /* mantissa: its bits without the leading one */
    int64_t least_even, most_even;
} json_real_t;

static const json_real_t JSON_DOUBLE = {52, 1023, -4, 23}, JSON_FLOAT = {23, 127, -17, 10};

INLINE int64_t json_infinite(const json_real_t *real) {
    return (2ll * real->bias + 1) << real->mantissa;
}

/* The float or double nearest to digits * 10^power, found by Eisel and Lemire's method, as its bits
 * without a sign; -1 if the method does not decide. A float is never rounded from a double:
 * rounding twice may give the second nearest. */
static int64_t json_nearest(const uint64_t *powers, const json_real_t *real, uint64_t digits,
                            int64_t power) {
    const int64_t infinite = json_infinite(real);
    const uint64_t tail = UINT64_MAX >> (real->mantissa + 3);
    if (digits == 0 || power < -342) return 0;
    if (power > 308) return infinite;
    int zeros = __builtin_clzll(digits);
    digits <<= zeros;
    const uint64_t *entry = powers + 2 * (power + 342);
    unsigned __int128 first = (unsigned __int128)digits * entry[0];
    uint64_t high = (uint64_t)(first >> 64), low = (uint64_t)first;
    if ((high & tail) == tail) {
        uint64_t second = (uint64_t)(((unsigned __int128)digits * entry[1]) >> 64);
        low += second;
        high += low < second;
    }
    if (low == UINT64_MAX && (power < -27 || power > 55)) return -1;
    int upper = (int)(high >> 63), shift = upper + 64 - real->mantissa - 3;
    uint64_t mantissa = high >> shift;
    int64_t exponent = ((217706 * power) >> 16) + 63 + upper - zeros + real->bias;
    if (exponent <= 0) { /* too small for a leading one */
        if (1 - exponent >= 64) return 0;
        mantissa >>= 1 - exponent;
        mantissa += mantissa & 1;
        return (int64_t)(mantissa >> 1);
    }
    if (low <= 1 && power >= real->least_even && power <= real->most_even &&
        (mantissa & 3) == 1 && mantissa << shift == high)
        mantissa &= ~1ull; /* exactly halfway: to the even one */
    mantissa += mantissa & 1;
    mantissa >>= 1;
    const uint64_t leading = 1ull << real->mantissa;
    if (mantissa >= 2 * leading) {
        mantissa = leading;
        exponent++;
    }
    if (exponent > 2 * real->bias) return infinite;
    return (int64_t)((mantissa & ~leading) | (uint64_t)exponent << real->mantissa);
}

static int json_note_undecided(json_state_t *s, const json_node_t *node, const json_number_t *n) {
    int fault = json_reserve(s, s->undecided);
    if (fault) return fault;
    ((json_undecided_t *)s->undecided->values)[s->undecided->length++] =
        (json_undecided_t){node - s->nodes, node->length, s->row, n->begin - s->payloads,
                           n->end - n->begin};
    return OK;
}

static int json_append_real(json_state_t *s, json_node_t *node) {
    json_number_t n;
    int fault = json_read_number(&s->text.p, s->text.end, &n);
    if (fault) return fault;
    const json_real_t *real = node->width == 4 ? &JSON_FLOAT : &JSON_DOUBLE;
    int64_t bits = json_nearest(s->powers, real, n.digits, n.power);
    if (bits < 0 || (n.is_cut && bits != json_nearest(s->powers, real, n.digits + 1, n.power))) {
        if ((fault = json_note_undecided(s, node, &n))) return fault;
        bits = 0;
    }
    if (bits == json_infinite(real)) return JSON_OUT_OF_RANGE;
    uint64_t sign = (uint64_t)n.is_negative << (node->width * 8 - 1);
    json_put_integer(node, (int64_t)((uint64_t)bits | sign));
    json_finish_item(node, 1);
    return OK;
}

/* Fits the number exactly or not at all. `n` is a number that has been read. */
static int json_fit_decimal(const json_number_t *n, const json_node_t *node,
                            unsigned __int128 *value) {
    int64_t count = 0, pending = 0; /* digits taken, and zeros after them that may be trailing */
    *value = 0;
    for (const uint8_t *p = n->begin; p < n->end && (*p | 0x20) != 'e'; p++) {
        uint8_t digit = (uint8_t)(*p - '0');
        if (digit > 9) continue;
        if (digit == 0) {
            pending += count > 0;
            continue;
        }
        count += pending + 1;
        if (count > 38) return JSON_DECIMAL;
        for (; pending >= 0; pending--) *value *= 10;
        *value += digit;
        pending = 0;
    }
    if (count == 0) return OK;
    /* json_read_number took at most 19 digits and counted the rest in `power`. */
    int64_t all = count + pending, kept = n->count < 19 ? n->count : 19;
    int64_t shift = n->power - (all - kept) + pending + node->scale;
    if (shift < 0 || count + shift > node->precision) return JSON_DECIMAL;
    for (; shift > 0; shift--) *value *= 10;
    return OK;
}

static int json_append_decimal(json_state_t *s, json_node_t *node, int is_string) {
    json_string_t found;
    json_number_t n;
    unsigned __int128 value;
    int fault;
    if (is_string) {
        if ((fault = json_read_string(&s->text, &found))) return fault;
        const uint8_t *p = found.begin, *end = p + found.length;
        if (json_read_number(&p, end, &n) || p != end) return JSON_DECIMAL;
    } else if ((fault = json_read_number(&s->text.p, s->text.end, &n))) {
        return fault;
    }
    if ((fault = json_fit_decimal(&n, node, &value))) return fault;
    if (n.is_negative) value = 0 - value;
    __builtin_memcpy(node->values + 16 * node->length, &value, 16);
    json_finish_item(node, 1);
    return OK;
}
