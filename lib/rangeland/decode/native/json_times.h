/* Dates and times in JSON strings, appended to their columns. Part of kernel.c. */

/* The number that `count` digits form; -1 if they are not digits. */
INLINE int64_t json_digits(const uint8_t *p, int count) {
    int64_t value = 0;
    for (int i = 0; i < count; i++) {
        uint8_t digit = (uint8_t)(p[i] - '0');
        if (digit > 9) return -1;
        value = value * 10 + digit;
    }
    return value;
}

/* YYYY-MM-DD as days since 1970. */
static int json_read_day(const uint8_t *p, int64_t *days) {
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t year = json_digits(p, 4), month = json_digits(p + 5, 2), day = json_digits(p + 8, 2);
    if (year < 1 || month < 1 || month > 12 || day < 1 || p[4] != '-' || p[7] != '-') return 0;
    int is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > lengths[month - 1] + (month == 2 && is_leap)) return 0;
    int64_t y = month <= 2 ? year - 1 : year; /* years that begin in March */
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    *days = y * 365 + y / 4 - y / 100 + y / 400 + of_year - 719468;
    return 1;
}

/* Z, +hh, +hhmm or +hh:mm in minutes. */
static int json_read_zone(const uint8_t *p, int64_t length, int64_t *minutes) {
    if (length == 1 && (*p | 0x20) == 'z') return *minutes = 0, 1;
    if ((*p != '+' && *p != '-') || (length != 3 && length != 5 && length != 6)) return 0;
    if (length == 6 && p[3] != ':') return 0;
    int64_t hour = json_digits(p + 1, 2), minute = length == 3 ? 0 : json_digits(p + length - 2, 2);
    if (hour < 0 || minute < 0 || minute > 59 || hour * 60 + minute > 18 * 60) return 0;
    *minutes = (*p == '-' ? -1 : 1) * (hour * 60 + minute);
    return 1;
}

static int json_read_time(const uint8_t *p, int64_t length, int has_zone, int64_t *micros) {
    const uint8_t *end = p + length;
    int64_t days, second = 0, fraction = 0, zone = 0;
    if (length < 16 || !json_read_day(p, &days)) return JSON_TIME;
    if ((p[10] | 0x20) != 't' && p[10] != ' ') return JSON_TIME;
    int64_t hour = json_digits(p + 11, 2), minute = json_digits(p + 14, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || p[13] != ':') return JSON_TIME;
    p += 16;
    if (end - p >= 3 && *p == ':') {
        second = json_digits(p + 1, 2);
        if (second < 0 || second > 59) return JSON_TIME;
        p += 3;
        if (p < end && *p == '.') {
            int64_t count = 0;
            for (p++; json_is_digit(p, end); p++)
                if (++count <= 6) fraction = fraction * 10 + (*p - '0');
            if (count == 0 || count > 9) return JSON_TIME;
            for (; count < 6; count++) fraction *= 10;
        }
    }
    if (p == end) {
        if (has_zone) return JSON_NO_ZONE;
    } else {
        if (!json_read_zone(p, end - p, &zone)) return JSON_TIME;
        if (!has_zone) return JSON_HAS_ZONE;
    }
    int64_t seconds = days * 86400 + hour * 3600 + (minute - zone) * 60 + second;
    if (seconds < -62135596800 || seconds >= 253402300800) return JSON_TIME; /* years 1 to 9999 */
    *micros = seconds * 1000000 + fraction;
    return OK;
}

static int json_append_day(json_state_t *s, json_node_t *node) {
    json_string_t found;
    int64_t days;
    int fault = json_read_string(&s->text, &found);
    if (fault) return fault;
    if (found.length != 10 || !json_read_day(found.begin, &days)) return JSON_DATE;
    ((int32_t *)node->values)[node->length] = (int32_t)days;
    json_finish_item(node, 1);
    return OK;
}

static int json_append_time(json_state_t *s, json_node_t *node) {
    json_string_t found;
    int64_t micros;
    int fault = json_read_string(&s->text, &found);
    if (fault) return fault;
    fault = json_read_time(found.begin, found.length, node->kind == JSON_INSTANT, &micros);
    if (fault) return fault;
    ((int64_t *)node->values)[node->length] = micros;
    json_finish_item(node, 1);
    return OK;
}
