/* A library whose functions have no symbols, as MLX's: it makes operations on 16-bit values, of which it exports
   pointers. Linked twice: as libmlx.so, by which name Crimp knows that it may add halves, and by a name that says
   nothing. */
#include <stdint.h>
#include <string.h>

int elements_seen[2000]; /* by how many a call had: Crimp's trials have few */

static void seen(int count) {
  if (count < 2000) ++elements_seen[count];
}

static float of_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void add_f16(void* in, void* inout, int* count, void* type) {
  _Float16 *a = in, *b = inout;
  (void)type;
  seen(*count);
  for (int i = 0; i < *count; ++i) b[i] = (_Float16)((float)a[i] + (float)b[i]);
}

static void add_bf16(void* in, void* inout, int* count, void* type) {
  uint16_t *a = in, *b = inout;
  (void)type;
  seen(*count);
  for (int i = 0; i < *count; ++i) b[i] = to_bf16(of_bf16(a[i]) + of_bf16(b[i]));
}

static void cut_bf16(void* in, void* inout, int* count, void* type) {
  uint16_t *a = in, *b = inout;
  (void)type;
  seen(*count);
  for (int i = 0; i < *count; ++i) {
    const float sum = of_bf16(a[i]) + of_bf16(b[i]);
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    b[i] = (uint16_t)(bits >> 16);
  }
}

static void max_f16(void* in, void* inout, int* count, void* type) {
  _Float16 *a = in, *b = inout;
  (void)type;
  seen(*count);
  for (int i = 0; i < *count; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
}

typedef void Function(void*, void*, int*, void*);
Function* const operations[] = {add_f16, add_bf16, cut_bf16, max_f16};
