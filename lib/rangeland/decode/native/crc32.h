/* CRC-32 as in zlib, and big-endian numbers. Part of kernel.c, whose rules apply here too. */

typedef uint32_t crc_table_t[8][256];

INLINE uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

INLINE int64_t big64(const uint8_t *p) {
    return (int64_t)((uint64_t)big32(p) << 32 | big32(p + 4));
}

INLINE uint32_t little32(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* Computed anew in each call: this takes a few microseconds, and no state is kept. */
static void fill_crc_table(crc_table_t table) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        table[0][i] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = table[slice - 1][i];
            table[slice][i] = crc >> 8 ^ table[0][crc & 0xff];
        }
}

/* Takes eight bytes at a time, each with a table of its own (slicing-by-8). */
INLINE uint32_t crc32_of(const crc_table_t t, const uint8_t *p, int64_t length) {
    uint32_t crc = 0xffffffffu;
    for (; length >= 8; length -= 8, p += 8) {
        uint32_t low = crc ^ little32(p), high = little32(p + 4);
        crc = t[7][low & 0xff] ^ t[6][low >> 8 & 0xff] ^ t[5][low >> 16 & 0xff] ^ t[4][low >> 24] ^
              t[3][high & 0xff] ^ t[2][high >> 8 & 0xff] ^ t[1][high >> 16 & 0xff] ^
              t[0][high >> 24];
    }
    for (; length > 0; length--, p++) crc = t[0][(crc ^ *p) & 0xff] ^ crc >> 8;
    return ~crc;
}
