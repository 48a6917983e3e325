/* CRC-32C (Castagnoli; RFC 3720, appendix B.4) by the processor's instruction where it has one, else by tables.
 *
 * What belongs here: the checksum of one run of bytes. It knows no record and no Python. crc32c_start() has to be called
 * once before anything else; the tables it fills are never written again, so everything else may run in any thread.
 *
 * The instruction takes eight bytes and answers three cycles later, but a new one can begin in each cycle. So long inputs
 * are cut into three pieces that are worked on side by side; the three results become one by a table that says what a
 * known number of zero bytes behind a piece would do to its checksum.
 *
 * Where the processor multiplies four pairs of polynomials at once (VPCLMULQDQ on 512 bits), that goes faster still: 64
 * bytes at the front are replaced by 64 bytes further on that leave the same remainder, until 16 are left, which the
 * instruction above reduces (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
 * Intel 2009). Most records are short, so what is not a multiple of 64 comes first: zeros in front of a message do not
 * change its remainder, and a load under a mask puts them there.
 */
#ifndef TIMESTONE_CRC32C_H
#define TIMESTONE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels write little-endian integers as they lie in memory; this machine takes the pure Python path"
#endif

#if defined(__x86_64__)
#if defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 9
#include <immintrin.h>
#define CRC32C_FOLDING 1
#define CRC32C_FOLDING_TARGET __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,vpclmulqdq")))
#endif
#include <nmmintrin.h>
#define CRC32C_HARDWARE 1
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC32C_HALF(crc, half) ((uint32_t)_mm_crc32_u32((crc), (half)))
#define CRC32C_BYTE(crc, byte) ((uint32_t)_mm_crc32_u8((crc), (byte)))
#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#define CRC32C_HARDWARE 1
#if defined(__clang__)
#define CRC32C_TARGET __attribute__((target("crc")))
#else
#define CRC32C_TARGET __attribute__((target("+crc")))
#endif
#define CRC32C_WORD(crc, word) __crc32cd((crc), (word))
#define CRC32C_HALF(crc, half) __crc32cw((crc), (half))
#define CRC32C_BYTE(crc, byte) __crc32cb((crc), (byte))
#else
#define CRC32C_HARDWARE 0
#endif

#ifndef CRC32C_FOLDING
#define CRC32C_FOLDING 0
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u /* bits reversed */
#define CRC32C_EMPTY 0xFFFFFFFFu      /* the register before the first byte */
#define CRC32C_LONG 4096              /* bytes of one of three pieces: a multiple of 8 each */
#define CRC32C_SHORT 336              /* three of these are all but 16 bytes of a record of 1 KiB */

static uint32_t crc32c_tables[8][256];
static uint32_t crc32c_behind_long[4][256];
static uint32_t crc32c_behind_short[4][256];

static inline uint64_t crc32c_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8); /* data need not be aligned */
    return word;
}

/* The functions below return the register, which is the checksum with all bits flipped. */

static uint32_t crc32c_portable(uint32_t state, const uint8_t *data, size_t length) {
    while (length >= 8) {
        uint64_t word = crc32c_load(data) ^ state;
        state = crc32c_tables[7][word & 255] ^ crc32c_tables[6][word >> 8 & 255] ^
                crc32c_tables[5][word >> 16 & 255] ^ crc32c_tables[4][word >> 24 & 255] ^
                crc32c_tables[3][word >> 32 & 255] ^ crc32c_tables[2][word >> 40 & 255] ^
                crc32c_tables[1][word >> 48 & 255] ^ crc32c_tables[0][word >> 56];
        data += 8;
        length -= 8;
    }
    while (length--) state = crc32c_tables[0][(state ^ *data++) & 255] ^ state >> 8;
    return state;
}

/* Of an index entry: its ordinal, then its first 28 bytes as they are in registers. Reading back eight bytes that were just
 * stored as four and four would cost more than the checksum. */
static uint32_t crc32c_entry_portable(uint32_t state, uint32_t ordinal, uint64_t first, uint64_t second, uint64_t third,
                                      uint32_t last) {
    uint8_t row[32];
    memcpy(row, &ordinal, 4);
    memcpy(row + 4, &first, 8);
    memcpy(row + 12, &second, 8);
    memcpy(row + 20, &third, 8);
    memcpy(row + 28, &last, 4);
    return crc32c_portable(state, row, sizeof row);
}

#if CRC32C_HARDWARE
static inline uint32_t crc32c_behind(uint32_t table[4][256], uint32_t state) {
    return table[0][state & 255] ^ table[1][state >> 8 & 255] ^ table[2][state >> 16 & 255] ^ table[3][state >> 24];
}

CRC32C_TARGET static inline uint32_t crc32c_in_three(uint32_t state, const uint8_t *data, size_t piece,
                                                     uint32_t table[4][256]) {
    uint32_t second = 0, third = 0;
    for (size_t at = 0; at < piece; at += 8) {
        state = CRC32C_WORD(state, crc32c_load(data + at));
        second = CRC32C_WORD(second, crc32c_load(data + piece + at));
        third = CRC32C_WORD(third, crc32c_load(data + 2 * piece + at));
    }
    return crc32c_behind(table, crc32c_behind(table, state) ^ second) ^ third;
}

CRC32C_TARGET static uint32_t crc32c_by_instruction(uint32_t state, const uint8_t *data, size_t length) {
    for (; length >= 3 * CRC32C_LONG; data += 3 * CRC32C_LONG, length -= 3 * CRC32C_LONG)
        state = crc32c_in_three(state, data, CRC32C_LONG, crc32c_behind_long);
    for (; length >= 3 * CRC32C_SHORT; data += 3 * CRC32C_SHORT, length -= 3 * CRC32C_SHORT)
        state = crc32c_in_three(state, data, CRC32C_SHORT, crc32c_behind_short);
    for (; length >= 8; data += 8, length -= 8) state = CRC32C_WORD(state, crc32c_load(data));
    if (length >= 4) {
        uint32_t half;
        memcpy(&half, data, 4);
        state = CRC32C_HALF(state, half);
        data += 4;
        length -= 4;
    }
    while (length--) state = CRC32C_BYTE(state, *data++);
    return state;
}

CRC32C_TARGET static uint32_t crc32c_entry_by_instruction(uint32_t state, uint32_t ordinal, uint64_t first,
                                                          uint64_t second, uint64_t third, uint32_t last) {
    state = CRC32C_WORD(CRC32C_HALF(state, ordinal), first);
    return CRC32C_HALF(CRC32C_WORD(CRC32C_WORD(state, second), third), last);
}

#if CRC32C_FOLDING
#define CRC32C_FOLDED 32 /* bytes from which folding is no slower than the instruction alone; at least four */

/* What 64 bits are multiplied by to move them this many bits on: x to that power modulo the polynomial. The bits are
 * reversed, which costs a factor of x in each product; so the powers are one less. Of each pair the first is for the eight
 * bytes that come first. */
static uint64_t crc32c_moved_512[2], crc32c_moved_2048[2];
static uint64_t crc32c_moved_to_last[8]; /* each 16 of 64 bytes to the last 16; these stay, which no factor says */

static uint32_t crc32c_power(unsigned exponent) {
    uint32_t power = 0x80000000u; /* x to the power of 0 */
    while (exponent--) power = power >> 1 ^ (power & 1 ? CRC32C_POLYNOMIAL : 0);
    return power;
}

static void crc32c_fill_moved(uint64_t moved[2], unsigned bits) {
    moved[0] = crc32c_power(bits + 32 - 1);
    moved[1] = crc32c_power(bits - 32 - 1);
}

CRC32C_FOLDING_TARGET static inline __m512i crc32c_fold(__m512i front, __m512i moved, __m512i data) {
    __m512i first = _mm512_clmulepi64_epi128(front, moved, 0x00), second = _mm512_clmulepi64_epi128(front, moved, 0x11);
    return _mm512_ternarylogic_epi64(first, second, data, 0x96); /* the exclusive or of three */
}

CRC32C_FOLDING_TARGET static inline __m512i crc32c_factors(const uint64_t moved[2]) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)moved[1], (long long)moved[0]));
}

CRC32C_FOLDING_TARGET static inline uint32_t crc32c_reduced(__m512i all) {
    __m512i four = crc32c_fold(all, _mm512_loadu_si512(crc32c_moved_to_last), _mm512_maskz_mov_epi64(0xC0, all));
    __m256i two = _mm256_xor_si256(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));
    __m128i one = _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    return CRC32C_WORD(CRC32C_WORD(0, (uint64_t)_mm_cvtsi128_si64(one)), (uint64_t)_mm_extract_epi64(one, 1));
}

CRC32C_FOLDING_TARGET static uint32_t crc32c_by_folding(uint32_t state, const uint8_t *data, size_t length) {
    if (length < CRC32C_FOLDED || state != CRC32C_EMPTY) return crc32c_by_instruction(state, data, length);
    const __m512i near = crc32c_factors(crc32c_moved_512);
    /* The first 1 to 64 bytes at the end of a block of zeros. The load touches nothing in front of them. Flipping the first
     * four bytes of the message is what a register of all ones does. */
    const size_t head = (length - 1) % 64 + 1;
    const __mmask64 there = ~0ull << (64 - head);
    __m512i all = _mm512_maskz_loadu_epi8(there, data + head - 64);
    all = _mm512_xor_si512(all, _mm512_movm_epi8(there & ~(there << 4)));
    data += head, length -= head;
    if (head < 4) {
        __m512i next = _mm512_xor_si512(_mm512_loadu_si512(data), _mm512_movm_epi8(0xFull >> head));
        all = crc32c_fold(all, near, next);
        data += 64, length -= 64;
    }
    for (; length % 256; data += 64, length -= 64) all = crc32c_fold(all, near, _mm512_loadu_si512(data));
    if (length) { /* four blocks side by side: none waits for the product of its neighbour */
        const __m512i far = crc32c_factors(crc32c_moved_2048);
        __m512i lanes[4] = {crc32c_fold(all, near, _mm512_loadu_si512(data))};
        for (int lane = 1; lane < 4; lane++) lanes[lane] = _mm512_loadu_si512(data + 64 * lane);
        for (data += 256, length -= 256; length; data += 256, length -= 256)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = crc32c_fold(lanes[lane], far, _mm512_loadu_si512(data + 64 * lane));
        all = lanes[0];
        for (int lane = 1; lane < 4; lane++) all = crc32c_fold(all, near, lanes[lane]);
    }
    return crc32c_reduced(all);
}

static int crc32c_can_fold(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq");
}
#endif

static int crc32c_has_instruction(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 7 & 1) != 0; /* HWCAP_CRC32 */
#else
    return 1; /* every 64-bit processor of Apple has it */
#endif
}

/* What `piece` zero bytes do to the register: linear, so known for every state once it is known for its bits. */
static void crc32c_fill_behind(uint32_t table[4][256], size_t piece) {
    static const uint8_t zeros[CRC32C_LONG];
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) bits[bit] = crc32c_portable(1u << bit, zeros, piece);
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t result = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) result ^= bits[8 * byte + bit];
            table[byte][value] = result;
        }
}
#endif

static uint32_t (*crc32c_of_run)(uint32_t, const uint8_t *, size_t) = crc32c_portable;
static uint32_t (*crc32c_of_entry)(uint32_t, uint32_t, uint64_t, uint64_t, uint64_t, uint32_t) = crc32c_entry_portable;

/* Fill the tables and choose the fastest way. Returns 1 when it is the processor's instruction. */
static int crc32c_start(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t state = value;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_tables[0][value] = state;
    }
    for (int place = 1; place < 8; place++)
        for (int value = 0; value < 256; value++) {
            uint32_t state = crc32c_tables[place - 1][value];
            crc32c_tables[place][value] = crc32c_tables[0][state & 255] ^ state >> 8;
        }
#if CRC32C_HARDWARE
    if (crc32c_has_instruction()) {
        crc32c_fill_behind(crc32c_behind_long, CRC32C_LONG);
        crc32c_fill_behind(crc32c_behind_short, CRC32C_SHORT);
        crc32c_of_run = crc32c_by_instruction;
#if CRC32C_FOLDING
        if (crc32c_can_fold()) {
            for (int part = 0; part < 3; part++) crc32c_fill_moved(crc32c_moved_to_last + 2 * part, 384 - 128 * part);
            crc32c_fill_moved(crc32c_moved_512, 512);
            crc32c_fill_moved(crc32c_moved_2048, 2048);
            crc32c_of_run = crc32c_by_folding;
        }
#endif
        crc32c_of_entry = crc32c_entry_by_instruction;
        return 1;
    }
#endif
    return 0;
}

static inline uint32_t crc32c_of(const uint8_t *data, size_t length) {
    return ~crc32c_of_run(CRC32C_EMPTY, data, length);
}

/* The checksum of `data` behind what `crc` is the checksum of. */
static inline uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t length) {
    return ~crc32c_of_run(~crc, data, length);
}

/* The checksum of an ordinal and the first 28 bytes of an entry behind what `crc` is the checksum of. */
static inline uint32_t crc32c_extend_entry(uint32_t crc, uint32_t ordinal, uint64_t first, uint64_t second,
                                           uint64_t third, uint32_t last) {
    return ~crc32c_of_entry(~crc, ordinal, first, second, third, last);
}

static inline uint32_t crc32c_of_portable(const uint8_t *data, size_t length) {
    return ~crc32c_portable(CRC32C_EMPTY, data, length);
}

#endif
