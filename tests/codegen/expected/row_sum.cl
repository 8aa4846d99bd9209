__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void k_row_sum(
    __global const float* restrict x,
    __global float* restrict out0,
    const int n) {
    __local float scratch0[64] __attribute__((aligned(16)));
    const int bx = get_group_id(0);
    const int tid = get_local_id(0);
    float part0 = 0.0f;
    for (int i = tid; i < n; i += 64) {
        const float value = x[(bx * n) + i];
        const float next0 = part0 + value;
        part0 = next0;
    }
    scratch0[tid] = part0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 63) < 32) {
        const float other_c1 = scratch0[tid + 32];
        part0 = part0 + other_c1;
        scratch0[tid] = part0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 63) < 16) {
        const float other_c2 = scratch0[tid + 16];
        part0 = part0 + other_c2;
        scratch0[tid] = part0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 63) < 8) {
        const float other_c3 = scratch0[tid + 8];
        part0 = part0 + other_c3;
        scratch0[tid] = part0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 63) < 4) {
        const float other_c4 = scratch0[tid + 4];
        part0 = part0 + other_c4;
        scratch0[tid] = part0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 63) < 2) {
        const float other_c5 = scratch0[tid + 2];
        part0 = part0 + other_c5;
        scratch0[tid] = part0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((tid & 63) < 1) {
        const float other_c6 = scratch0[tid + 1];
        part0 = part0 + other_c6;
        scratch0[tid] = part0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    part0 = scratch0[tid - (tid & 63)];
    barrier(CLK_LOCAL_MEM_FENCE);
    out0[(bx * 64) + tid] = part0;
}
