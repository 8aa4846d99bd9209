__attribute__((reqd_work_group_size(128, 1, 1)))
__kernel void k_row_welford(
    __global const float* restrict x,
    __global float* restrict out0,
    __global float* restrict out1,
    __global float* restrict out2,
    const int n) {
    __local float scratch0[128] __attribute__((aligned(16)));
    __local float scratch1[128] __attribute__((aligned(16)));
    __local float scratch2[128] __attribute__((aligned(16)));
    const int bx = get_group_id(0);
    const int tid = get_local_id(0);
    float part0 = 0.0f;
    float part1 = 0.0f;
    float part2 = 0.0f;
    for (int i = tid; i < n; i += 128) {
        const float value = x[(bx * n) + i];
        const float t0 = part2 + 1.0f;
        const float next0 = part0 + ((value - part0) * (1.0f / ((t0 > 0.0f) ? t0 : 1.0f)));
        const float t1 = value - part0;
        const float t2 = part2 + 1.0f;
        const float next1 = part1 + (((t1 * t1) * part2) * (1.0f / ((t2 > 0.0f) ? t2 : 1.0f)));
        const float next2 = part2 + 1.0f;
        part0 = next0;
        part1 = next1;
        part2 = next2;
    }
    scratch0[tid] = part0;
    scratch1[tid] = part1;
    scratch2[tid] = part2;
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 64) {
        const float other_c1 = scratch0[tid + 64];
        const float other_c2 = scratch1[tid + 64];
        const float other_c3 = scratch2[tid + 64];
        const float t3 = part2 + other_c3;
        const float merged_c4 = part0 + ((other_c1 - part0) * (other_c3 / ((t3 > 0.0f) ? t3 : 1.0f)));
        const float t4 = other_c1 - part0;
        const float t5 = part2 + other_c3;
        const float merged_c5 = (part1 + other_c2) + (((t4 * t4) * part2) * (other_c3 / ((t5 > 0.0f) ? t5 : 1.0f)));
        const float merged_c6 = part2 + other_c3;
        part0 = merged_c4;
        part1 = merged_c5;
        part2 = merged_c6;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 32) {
        const float other_c7 = scratch0[tid + 32];
        const float other_c8 = scratch1[tid + 32];
        const float other_c9 = scratch2[tid + 32];
        const float t6 = part2 + other_c9;
        const float merged_c10 = part0 + ((other_c7 - part0) * (other_c9 / ((t6 > 0.0f) ? t6 : 1.0f)));
        const float t7 = other_c7 - part0;
        const float t8 = part2 + other_c9;
        const float merged_c11 = (part1 + other_c8) + (((t7 * t7) * part2) * (other_c9 / ((t8 > 0.0f) ? t8 : 1.0f)));
        const float merged_c12 = part2 + other_c9;
        part0 = merged_c10;
        part1 = merged_c11;
        part2 = merged_c12;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 16) {
        const float other_c13 = scratch0[tid + 16];
        const float other_c14 = scratch1[tid + 16];
        const float other_c15 = scratch2[tid + 16];
        const float t9 = part2 + other_c15;
        const float merged_c16 = part0 + ((other_c13 - part0) * (other_c15 / ((t9 > 0.0f) ? t9 : 1.0f)));
        const float t10 = other_c13 - part0;
        const float t11 = part2 + other_c15;
        const float merged_c17 = (part1 + other_c14) + (((t10 * t10) * part2) * (other_c15 / ((t11 > 0.0f) ? t11 : 1.0f)));
        const float merged_c18 = part2 + other_c15;
        part0 = merged_c16;
        part1 = merged_c17;
        part2 = merged_c18;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 8) {
        const float other_c19 = scratch0[tid + 8];
        const float other_c20 = scratch1[tid + 8];
        const float other_c21 = scratch2[tid + 8];
        const float t12 = part2 + other_c21;
        const float merged_c22 = part0 + ((other_c19 - part0) * (other_c21 / ((t12 > 0.0f) ? t12 : 1.0f)));
        const float t13 = other_c19 - part0;
        const float t14 = part2 + other_c21;
        const float merged_c23 = (part1 + other_c20) + (((t13 * t13) * part2) * (other_c21 / ((t14 > 0.0f) ? t14 : 1.0f)));
        const float merged_c24 = part2 + other_c21;
        part0 = merged_c22;
        part1 = merged_c23;
        part2 = merged_c24;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 4) {
        const float other_c25 = scratch0[tid + 4];
        const float other_c26 = scratch1[tid + 4];
        const float other_c27 = scratch2[tid + 4];
        const float t15 = part2 + other_c27;
        const float merged_c28 = part0 + ((other_c25 - part0) * (other_c27 / ((t15 > 0.0f) ? t15 : 1.0f)));
        const float t16 = other_c25 - part0;
        const float t17 = part2 + other_c27;
        const float merged_c29 = (part1 + other_c26) + (((t16 * t16) * part2) * (other_c27 / ((t17 > 0.0f) ? t17 : 1.0f)));
        const float merged_c30 = part2 + other_c27;
        part0 = merged_c28;
        part1 = merged_c29;
        part2 = merged_c30;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 2) {
        const float other_c31 = scratch0[tid + 2];
        const float other_c32 = scratch1[tid + 2];
        const float other_c33 = scratch2[tid + 2];
        const float t18 = part2 + other_c33;
        const float merged_c34 = part0 + ((other_c31 - part0) * (other_c33 / ((t18 > 0.0f) ? t18 : 1.0f)));
        const float t19 = other_c31 - part0;
        const float t20 = part2 + other_c33;
        const float merged_c35 = (part1 + other_c32) + (((t19 * t19) * part2) * (other_c33 / ((t20 > 0.0f) ? t20 : 1.0f)));
        const float merged_c36 = part2 + other_c33;
        part0 = merged_c34;
        part1 = merged_c35;
        part2 = merged_c36;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 127) < 1) {
        const float other_c37 = scratch0[tid + 1];
        const float other_c38 = scratch1[tid + 1];
        const float other_c39 = scratch2[tid + 1];
        const float t21 = part2 + other_c39;
        const float merged_c40 = part0 + ((other_c37 - part0) * (other_c39 / ((t21 > 0.0f) ? t21 : 1.0f)));
        const float t22 = other_c37 - part0;
        const float t23 = part2 + other_c39;
        const float merged_c41 = (part1 + other_c38) + (((t22 * t22) * part2) * (other_c39 / ((t23 > 0.0f) ? t23 : 1.0f)));
        const float merged_c42 = part2 + other_c39;
        part0 = merged_c40;
        part1 = merged_c41;
        part2 = merged_c42;
        scratch0[tid] = part0;
        scratch1[tid] = part1;
        scratch2[tid] = part2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    part0 = scratch0[tid - (tid & 127)];
    part1 = scratch1[tid - (tid & 127)];
    part2 = scratch2[tid - (tid & 127)];
    barrier(CLK_LOCAL_MEM_FENCE);
    out0[(bx * 128) + tid] = part0;
    out1[(bx * 128) + tid] = part1;
    out2[(bx * 128) + tid] = part2;
}
