/* JSON as text: white space, strings, numbers, and values to skip.
 *
 * Part of kernel.c, whose rules apply here too. decode/payload/json/json_rules.py says what JSON
 * payloads may contain. The fault numbers are mirrored in decode/payload/json/json_kernel.py. */

enum json_fault {
    JSON_SYNTAX = 1,
    JSON_ENDS = 2,
    JSON_TRAILING = 3,
    JSON_WRONG_TYPE = 4,
    JSON_OUT_OF_RANGE = 5,
    JSON_NOT_WHOLE = 6,
    JSON_NOT_UTF8 = 7,
    JSON_CONTROL = 8,
    JSON_ESCAPE = 9,
    JSON_HALF_PAIR = 10,
    JSON_TOO_DEEP = 11,
    JSON_REPEATED = 12,
    JSON_MISSING = 13,
    JSON_NULL = 14,
    JSON_UNKNOWN = 15,
    JSON_DATE = 16,
    JSON_TIME = 17,
    JSON_NO_ZONE = 18,
    JSON_HAS_ZONE = 19,
    JSON_DECIMAL = 20,
    JSON_BASE64 = 21,
    JSON_TOO_MANY = 22,
    JSON_GROW = 99, /* a column is full: the caller makes room and calls again */
};

/* The same limits as in decode/payload/json/json_rules.py. */
enum { JSON_MAX_DEPTH = 64, JSON_CELLS_PER_BYTE = 8, JSON_FREE_CELLS = 20000,
       JSON_MOST_CELLS = 1 << 24 };

/* `depth` counts the arrays and objects that are open around `p`. */
typedef struct {
    const uint8_t *p, *end, *limit; /* `limit`: the end of all payloads */
    uint8_t *scratch;               /* as large as the largest payload, plus SLACK */
    int64_t depth;
} json_text_t;

typedef struct {
    const uint8_t *begin;
    int64_t length;
    int has_escapes;
} json_string_t;

INLINE void json_skip_space(json_text_t *t) {
    const uint8_t *p = t->p, *end = t->end;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    t->p = p;
}

/* The next character that is not white space must be `wanted`. */
INLINE int json_expect(json_text_t *t, uint8_t wanted) {
    json_skip_space(t);
    if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
    if (UNLIKELY(*t->p != wanted)) return JSON_SYNTAX;
    t->p++;
    return OK;
}

INLINE uint64_t json_load8(const uint8_t *p) {
    uint64_t word;
    __builtin_memcpy(&word, p, 8);
    return word;
}

#define JSON_ONES 0x0101010101010101ull
#define JSON_HIGHS 0x8080808080808080ull

/* Strict: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static int json_is_utf8(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        uint8_t lead = *p;
        if (lead < 0x80) {
            p++;
            continue;
        }
        int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || end - p <= more) return 0;
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (p[1] < low || p[1] > high) return 0;
        for (int i = 2; i <= more; i++)
            if ((p[i] & 0xc0) != 0x80) return 0;
        p += more + 1;
    }
    return 1;
}

/* After the opening quote: finds the closing one and moves past it. Escapes are not checked yet. */
static int json_scan_string(json_text_t *t, json_string_t *found) {
    const uint8_t *p = t->p, *end = t->end;
    uint64_t high = 0;
    found->begin = p;
    found->has_escapes = 0;
    for (;;) {
        while (end - p >= 8) {
            uint64_t word = json_load8(p);
            uint64_t quote = word ^ (JSON_ONES * '"'), slash = word ^ (JSON_ONES * '\\');
            uint64_t stop = ((quote - JSON_ONES) & ~quote) | ((slash - JSON_ONES) & ~slash) |
                            ((word - JSON_ONES * 0x20) & ~word);
            stop &= JSON_HIGHS;
            if (stop) {
                int bits = __builtin_ctzll(stop) & ~7;
                high |= word & JSON_HIGHS & ((1ull << bits) - 1);
                p += bits / 8;
                break;
            }
            high |= word & JSON_HIGHS;
            p += 8;
        }
        if (UNLIKELY(p == end)) return t->p = p, JSON_ENDS;
        if (*p == '"') break;
        if (UNLIKELY(*p < 0x20)) return t->p = p, JSON_CONTROL;
        if (*p == '\\') {
            found->has_escapes = 1;
            if (UNLIKELY(end - p < 2)) return t->p = end, JSON_ENDS;
            p++;
            if (UNLIKELY(*p < 0x20)) return t->p = p, JSON_ESCAPE;
        }
        high |= *p & 0x80;
        p++;
    }
    found->length = p - found->begin;
    if (high && UNLIKELY(!json_is_utf8(found->begin, p))) return JSON_NOT_UTF8;
    t->p = p + 1;
    return OK;
}

/* The code unit given by four hexadecimal digits; -1 if they are not hexadecimal digits. */
static int32_t json_hex4(const uint8_t *p, const uint8_t *end) {
    int32_t unit = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = p[i], folded = c | 0x20;
        if (c >= '0' && c <= '9')
            unit = unit * 16 + (c - '0');
        else if (folded >= 'a' && folded <= 'f')
            unit = unit * 16 + (folded - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

static uint8_t *json_put_utf8(uint8_t *to, int32_t code) {
    if (code < 0x80) {
        *to++ = (uint8_t)code;
    } else if (code < 0x800) {
        *to++ = (uint8_t)(0xc0 | code >> 6);
        *to++ = (uint8_t)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (uint8_t)(0xe0 | code >> 12);
        *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        *to++ = (uint8_t)(0x80 | (code & 0x3f));
    } else {
        *to++ = (uint8_t)(0xf0 | code >> 18);
        *to++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        *to++ = (uint8_t)(0x80 | (code & 0x3f));
    }
    return to;
}

/* The text of a string with escapes; it is never longer than what was written. */
static int json_unescape(const json_string_t *from, uint8_t *to, int64_t *length) {
    const uint8_t *p = from->begin, *end = p + from->length;
    uint8_t *begin = to;
    while (p < end) {
        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        uint8_t kind = p[1]; /* json_scan_string has seen that it is there */
        p += 2;
        switch (kind) {
        case '"': case '\\': case '/': *to++ = kind; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'u': {
            int32_t code = json_hex4(p, end);
            if (code < 0) return JSON_ESCAPE;
            p += 4;
            if (code >= 0xd800 && code < 0xe000) {
                if (code >= 0xdc00 || end - p < 6 || p[0] != '\\' || p[1] != 'u')
                    return JSON_HALF_PAIR;
                int32_t low = json_hex4(p + 2, end);
                if (low < 0xdc00 || low >= 0xe000) return low < 0 ? JSON_ESCAPE : JSON_HALF_PAIR;
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                p += 6;
            }
            to = json_put_utf8(to, code);
            break;
        }
        default: return JSON_ESCAPE;
        }
    }
    *length = to - begin;
    return OK;
}

/* After the opening quote: a string with its escapes resolved, either in place or in scratch. */
static int json_read_string(json_text_t *t, json_string_t *found) {
    int fault = json_scan_string(t, found);
    if (!fault && found->has_escapes) {
        fault = json_unescape(found, t->scratch, &found->length);
        found->begin = t->scratch;
    }
    return fault;
}

/* The value is digits * 10^power, and slightly more if `is_cut`. */
typedef struct {
    const uint8_t *begin, *end;
    uint64_t digits;
    int64_t power, count; /* `count`: significant digits, leading zeros left out */
    int is_negative, is_whole, is_cut;
} json_number_t;

INLINE int json_is_digit(const uint8_t *p, const uint8_t *end) {
    return p < end && (uint8_t)(*p - '0') < 10;
}

INLINE void json_add_digit(json_number_t *n, uint8_t digit) {
    if (n->count == 0 && digit == 0) return;
    if (n->count < 19) {
        n->digits = n->digits * 10 + digit;
    } else {
        n->is_cut |= digit != 0;
        n->power++;
    }
    n->count++;
}

static int json_read_number(const uint8_t **at, const uint8_t *end, json_number_t *n) {
    const uint8_t *p = *at;
    *n = (json_number_t){.begin = p, .is_whole = 1};
    if (p < end && *p == '-') n->is_negative = 1, p++;
    *at = p;
    if (!json_is_digit(p, end)) return p == end ? JSON_ENDS : JSON_SYNTAX;
    if (*p == '0')
        p++;
    else
        while (json_is_digit(p, end)) json_add_digit(n, (uint8_t)(*p++ - '0'));
    if (p < end && *p == '.') {
        n->is_whole = 0;
        *at = ++p;
        if (!json_is_digit(p, end)) return p == end ? JSON_ENDS : JSON_SYNTAX;
        for (; json_is_digit(p, end); n->power--) json_add_digit(n, (uint8_t)(*p++ - '0'));
    }
    if (p < end && (*p | 0x20) == 'e') {
        int64_t exponent = 0;
        int is_negative = 0;
        n->is_whole = 0;
        p++;
        if (p < end && (*p == '-' || *p == '+')) is_negative = *p++ == '-';
        *at = p;
        if (!json_is_digit(p, end)) return p == end ? JSON_ENDS : JSON_SYNTAX;
        for (; json_is_digit(p, end); p++)
            if (exponent < 1000000000000) exponent = exponent * 10 + (*p - '0');
        n->power += is_negative ? -exponent : exponent;
    }
    n->end = *at = p;
    return OK;
}

INLINE int json_skip_word(json_text_t *t, const char *word, int64_t length) {
    for (int64_t i = 0; i < length; i++, t->p++) {
        if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
        if (UNLIKELY(*t->p != (uint8_t)word[i])) return JSON_SYNTAX;
    }
    return OK;
}

/* Skips a value that has no parts, whatever it is. Must not be called at white space or at the
 * end. */
static int json_skip_scalar(json_text_t *t) {
    json_string_t string;
    json_number_t number;
    switch (*t->p) {
    case '"': t->p++; return json_read_string(t, &string);
    case 't': return json_skip_word(t, "true", 4);
    case 'f': return json_skip_word(t, "false", 5);
    case 'n': return json_skip_word(t, "null", 4);
    default: return json_read_number(&t->p, t->end, &number);
    }
}

/* Skips the name of a field and its colon, up to the value. */
static int json_skip_name(json_text_t *t) {
    json_string_t name;
    int fault = json_expect(t, '"');
    if (!fault) fault = json_read_string(t, &name);
    return fault ? fault : json_expect(t, ':');
}

/* Skips any value, but checks it as strictly as one that is kept. `objects` has a bit for each open
 * level. */
static int json_skip_value(json_text_t *t) {
    int64_t outside = t->depth;
    uint64_t objects = 0;
    int fault;
    for (;;) {
        json_skip_space(t);
        if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
        uint8_t c = *t->p;
        if (c == '{' || c == '[') {
            if (UNLIKELY(t->depth == JSON_MAX_DEPTH)) return JSON_TOO_DEEP;
            t->p++;
            json_skip_space(t);
            if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
            if (*t->p != (c == '{' ? '}' : ']')) {
                t->depth++;
                objects = objects << 1 | (c == '{');
                if (c == '{' && (fault = json_skip_name(t))) return fault;
                continue;
            }
            t->p++;
        } else if ((fault = json_skip_scalar(t))) {
            return fault;
        }
        for (;;) { /* after a value: the end of what contains it, or the next value */
            if (t->depth == outside) return OK;
            json_skip_space(t);
            if (UNLIKELY(t->p == t->end)) return JSON_ENDS;
            if (*t->p == ',') break;
            if (UNLIKELY(*t->p != (objects & 1 ? '}' : ']'))) return JSON_SYNTAX;
            t->p++;
            t->depth--;
            objects >>= 1;
        }
        t->p++;
        if ((objects & 1) && (fault = json_skip_name(t))) return fault;
    }
}
