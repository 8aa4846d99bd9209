typedef float float8_at __attribute__((ext_vector_type(8), aligned(4)));
static inline float8 emmy_max_f32x8(float8 a, float8 b) { return ((a > b) | (a != a)) ? a : b; }
static inline float emmy_max_f32(float a, float b) { return (a > b || a != a) ? a : b; }
static inline float8 emmy_expx8(float8 x) {
    float8 t = x * 1.44269504f + 12582912.0f;
    float8 n = t - 12582912.0f;
    float8 r = n * -0.693145751953125f + x; r = n * -1.42860677e-6f + r;
    float8 p = (float8)(1.3818699e-3f); p = p * r + 8.368779e-3f; p = p * r + 4.1668314e-2f; p = p * r + 1.666652e-1f; p = p * r + 0.49999994f; p = p * r + 1.0f; p = p * r + 1.0f;
    p = as_float8(as_int8(p) + (as_int8(t) << 23));
    p = x < -87.33654f ? (float8)(0.0f) : p;
    return x <= 88.72283f ? p : x + INFINITY;
}
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void softmax(
    __global const float* restrict x,
    __global float* restrict out) {
    __local float kept[4096] __attribute__((aligned(64)));
    const int bx = get_group_id(0);
    const int row = bx;
    __global const float* const x_row = x + ((long)row * 4096L);
    float8 acc_ml00_0 = (float8)((-INFINITY)), acc_ml00_1 = (float8)((-INFINITY));
    for (int column = 0; column < 4096; column += 16) {
        const float8 x_at = *(__global const float8_at*)(x_row + column);
        acc_ml00_0 = emmy_max_f32x8(acc_ml00_0, x_at);
        *(__local float8_at*)(kept + column) = x_at;
        const float8 x_at1 = *(__global const float8_at*)(x_row + (column + 8));
        acc_ml00_1 = emmy_max_f32x8(acc_ml00_1, x_at1);
        *(__local float8_at*)(kept + (column + 8)) = x_at1;
    }
    const float8 merged = emmy_max_f32x8(acc_ml00_0, acc_ml00_1);
    const float merged1 = emmy_max_f32(merged.s0, merged.s4);
    const float merged2 = emmy_max_f32(merged.s1, merged.s5);
    const float merged3 = emmy_max_f32(merged.s2, merged.s6);
    const float merged4 = emmy_max_f32(merged.s3, merged.s7);
    const float merged5 = emmy_max_f32(merged1, merged3);
    const float merged6 = emmy_max_f32(merged2, merged4);
    const float merged7 = emmy_max_f32(merged5, merged6);
    const float ml00 = merged7;
    float8 acc_ml10_0 = (float8)(0.0f), acc_ml10_1 = (float8)(0.0f);
    for (int column1 = 0; column1 < 4096; column1 += 16) {
        const float8 held = *(__local float8_at*)(kept + column1);
        const float8 held1 = emmy_expx8((held - (float8)(ml00)));
        acc_ml10_0 = acc_ml10_0 + held1;
        *(__local float8_at*)(kept + column1) = held1;
        const float8 held2 = *(__local float8_at*)(kept + (column1 + 8));
        const float8 held3 = emmy_expx8((held2 - (float8)(ml00)));
        acc_ml10_1 = acc_ml10_1 + held3;
        *(__local float8_at*)(kept + (column1 + 8)) = held3;
    }
    const float8 merged8 = acc_ml10_0 + acc_ml10_1;
    const float merged9 = merged8.s0 + merged8.s4;
    const float merged10 = merged8.s1 + merged8.s5;
    const float merged11 = merged8.s2 + merged8.s6;
    const float merged12 = merged8.s3 + merged8.s7;
    const float merged13 = merged9 + merged11;
    const float merged14 = merged10 + merged12;
    const float merged15 = merged13 + merged14;
    const float ml10 = merged15;
    const float row_value = 1.0f / ((ml00 == (-INFINITY)) ? 0.0f : ml10);
    __global float* const out_row = out + ((long)row * 4096L);
    for (int column2 = 0; column2 < 4096; column2 += 16) {
        const float8 held4 = *(__local float8_at*)(kept + column2);
        *(__global float8_at*)(out_row + column2) = (held4 * (float8)(row_value));
        const float8 held5 = *(__local float8_at*)(kept + (column2 + 8));
        *(__global float8_at*)(out_row + (column2 + 8)) = (held5 * (float8)(row_value));
    }
}
