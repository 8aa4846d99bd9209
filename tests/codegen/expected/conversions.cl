typedef float float4_at __attribute__((ext_vector_type(4), aligned(4)));
static inline float4 emmy_expx4(float4 x) {
    float4 t = x * 1.44269504f + 12582912.0f;
    float4 n = t - 12582912.0f;
    float4 r = n * -0.693145751953125f + x; r = n * -1.42860677e-6f + r;
    float4 p = (float4)(1.3818699e-3f); p = p * r + 8.368779e-3f; p = p * r + 4.1668314e-2f; p = p * r + 1.666652e-1f; p = p * r + 0.49999994f; p = p * r + 1.0f; p = p * r + 1.0f;
    p = as_float4(as_int4(p) + (as_int4(t) << 23));
    p = x < -87.33654f ? (float4)(0.0f) : p;
    return x <= 88.72283f ? p : x + INFINITY;
}
static inline float4 emmy_round_f16x4(float4 x) { ushort u[4]; half* h = (half*)u; vstore_half4(x, 0, h); return vload_half4(0, h); }
static inline ushort4 emmy_bf16x4(float4 x) { uint4 u = as_uint4(x); return convert_ushort4(select((u + 0x7FFF + ((u >> 16) & 1)) >> 16, (u >> 16) | 0x40, isnan(x))); }
static inline float4 emmy_round_bf16x4(float4 x) { return as_float4(convert_uint4(emmy_bf16x4(x)) << 16); }
static inline int emmy_floordiv_i32(int a, int b) { int q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }
static inline int4 emmy_floordiv_i32x4(int4 a, int4 b) { return (int4)(emmy_floordiv_i32(a.s0, b.s0), emmy_floordiv_i32(a.s1, b.s1), emmy_floordiv_i32(a.s2, b.s2), emmy_floordiv_i32(a.s3, b.s3)); }
typedef int int4_at __attribute__((ext_vector_type(4), aligned(4)));
typedef uchar uchar4_at __attribute__((ext_vector_type(4), aligned(1)));
__attribute__((reqd_work_group_size(4, 1, 1)))
__kernel void k_conversions(
    __global const float* restrict x,
    __global float* restrict out,
    __global int* restrict whole,
    __global uchar* restrict flag) {
    const int bx = get_group_id(0);
    const int tx = get_local_id(0);
    __global const float* const x_block = x + ((long)bx * 16L);
    const float4 v = *(__global const float4_at*)(x_block + (tx * 4));
    const float4 t0 = emmy_expx4(v) * v;
    *(__global float4_at*)(out + ((bx * 16) + (tx * 4))) = (((v < (float4)(0.5f)) & (~(v != v))) ? t0 : (t0 + t0));
    *(__global float4_at*)(out + (((bx * 16) + (tx * 4)) + 32)) = (float4)(v.s3, v.s2, v.s1, v.s0);
    *(__global float4_at*)(out + (((bx * 16) + (tx * 4)) + 64)) = (emmy_round_f16x4(v) + emmy_round_bf16x4(v));
    *(__global float4_at*)(out + (((bx * 16) + (tx * 4)) + 96)) = convert_float4(convert_long4(convert_int4((v * (float4)(10.0f)))));
    const int4 t1 = convert_int4((v * (float4)(10.0f)));
    *(__global int4_at*)(whole + ((bx * 16) + (tx * 4))) = ((t1 < (int4)(2)) ? t1 : emmy_floordiv_i32x4(t1, (int4)((-3))));
    *(__global uchar4_at*)(flag + ((bx * 16) + (tx * 4))) = convert_uchar4((v < (float4)(0.0f)) & 1);
}
