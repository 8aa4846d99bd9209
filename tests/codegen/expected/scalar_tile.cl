typedef float float4_at __attribute__((ext_vector_type(4), aligned(4)));
__attribute__((reqd_work_group_size(4, 4, 1)))
__kernel void k_scalar_tile(
    __global const float* restrict a,
    __global const float* restrict b,
    __global float* restrict c) {
    __local float a_tile[32] __attribute__((aligned(16)));
    __local float b_tile[64] __attribute__((aligned(16)));
    const int bx = get_group_id(0);
    const int by = get_group_id(1);
    const int tid = get_local_id(0) + get_local_id(1) * 4;
    const int tx = get_local_id(0);
    const int ty = get_local_id(1);
    float4 acc_0 = (float4)(0.0f), acc_1 = (float4)(0.0f);
    for (int k0 = 0; k0 < 13; k0 += 4) {
        const int t0 = tid >> 2;
        const int t1 = tid & 3;
        const int t2 = (by * 8) + t0;
        const int t3 = k0 + t1;
        a_tile[(t0 * 4) + t1] = (((t2 < 19) && (t3 < 13)) ? a[(t2 * 13) + t3] : 0.0f);
        const int t4 = (tid + 16) >> 2;
        const int t5 = tid & 3;
        const int t6 = (by * 8) + t4;
        const int t7 = k0 + t5;
        a_tile[(t4 * 4) + t5] = (((t6 < 19) && (t7 < 13)) ? a[(t6 * 13) + t7] : 0.0f);
        const int t8 = tid >> 2;
        const int t9 = (tid & 3) * 4;
        const int t10 = k0 + t8;
        const int t11 = (bx * 16) + t9;
        float4 t12 = (float4)(0.0f);
        if ((t10 < 13) && (t11 < 24)) t12 = *(__global const float4_at*)(b + ((t10 * 24) + t11));
        *(__local float4_at*)(b_tile + ((t8 * 16) + t9)) = t12;
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int kk = 0; kk < 4; kk += 1) {
            acc_0 = acc_0 + ((float4)(a_tile[(ty * 8) + kk]) * *(__local float4_at*)(b_tile + ((kk * 16) + (tx * 4))));
            acc_1 = acc_1 + ((float4)(a_tile[(((ty * 2) + 1) * 4) + kk]) * *(__local float4_at*)(b_tile + ((kk * 16) + (tx * 4))));
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int t13 = (by * 8) + (ty * 2);
    const int t14 = (bx * 16) + (tx * 4);
    if ((t13 < 19) && (t14 < 24)) *(__global float4_at*)(c + ((t13 * 24) + t14)) = acc_0;
    const int t15 = ((by * 8) + (ty * 2)) + 1;
    const int t16 = (bx * 16) + (tx * 4);
    if ((t15 < 19) && (t16 < 24)) *(__global float4_at*)(c + ((t15 * 24) + t16)) = acc_1;
}
