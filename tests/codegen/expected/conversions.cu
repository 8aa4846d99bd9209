#include <cuda_fp16.h>
#include <cuda_bf16.h>
static __device__ __forceinline__ int emmy_floordiv_i32(int a, int b) { int q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }
extern "C" __global__ void __launch_bounds__(4) k_conversions(
    const float* __restrict__ x,
    float* __restrict__ out,
    int* __restrict__ whole,
    unsigned char* __restrict__ flag) {
    const int bx = blockIdx.x;
    const int tx = threadIdx.x;
    const float* const x_block = x + ((long long)bx * 16LL);
    const float x_block_v1 = x_block[tx * 4];
    const float x_block_v2 = x_block[(tx * 4) + 1];
    const float x_block_v3 = x_block[(tx * 4) + 2];
    const float x_block_v4 = x_block[(tx * 4) + 3];
    const float v_0 = x_block_v1;
    const float v_1 = x_block_v2;
    const float v_2 = x_block_v3;
    const float v_3 = x_block_v4;
    const float t0 = expf(v_0) * v_0;
    out[(bx * 16) + (tx * 4)] = (((v_0 < 0.5f) && (!isnan(v_0))) ? t0 : (t0 + t0));
    const float t1 = expf(v_1) * v_1;
    out[((bx * 16) + (tx * 4)) + 1] = (((v_1 < 0.5f) && (!isnan(v_1))) ? t1 : (t1 + t1));
    const float t2 = expf(v_2) * v_2;
    out[((bx * 16) + (tx * 4)) + 2] = (((v_2 < 0.5f) && (!isnan(v_2))) ? t2 : (t2 + t2));
    const float t3 = expf(v_3) * v_3;
    out[((bx * 16) + (tx * 4)) + 3] = (((v_3 < 0.5f) && (!isnan(v_3))) ? t3 : (t3 + t3));
    out[((bx * 16) + (tx * 4)) + 32] = v_3;
    out[((bx * 16) + (tx * 4)) + 33] = v_2;
    out[((bx * 16) + (tx * 4)) + 34] = v_1;
    out[((bx * 16) + (tx * 4)) + 35] = v_0;
    out[((bx * 16) + (tx * 4)) + 64] = (__half2float(__float2half_rn(v_0)) + __bfloat162float(__float2bfloat16_rn(v_0)));
    out[((bx * 16) + (tx * 4)) + 65] = (__half2float(__float2half_rn(v_1)) + __bfloat162float(__float2bfloat16_rn(v_1)));
    out[((bx * 16) + (tx * 4)) + 66] = (__half2float(__float2half_rn(v_2)) + __bfloat162float(__float2bfloat16_rn(v_2)));
    out[((bx * 16) + (tx * 4)) + 67] = (__half2float(__float2half_rn(v_3)) + __bfloat162float(__float2bfloat16_rn(v_3)));
    out[((bx * 16) + (tx * 4)) + 96] = (float)(long long)(int)(v_0 * 10.0f);
    out[((bx * 16) + (tx * 4)) + 97] = (float)(long long)(int)(v_1 * 10.0f);
    out[((bx * 16) + (tx * 4)) + 98] = (float)(long long)(int)(v_2 * 10.0f);
    out[((bx * 16) + (tx * 4)) + 99] = (float)(long long)(int)(v_3 * 10.0f);
    const int t4 = (int)(v_0 * 10.0f);
    whole[(bx * 16) + (tx * 4)] = ((t4 < 2) ? t4 : emmy_floordiv_i32(t4, (-3)));
    const int t5 = (int)(v_1 * 10.0f);
    whole[((bx * 16) + (tx * 4)) + 1] = ((t5 < 2) ? t5 : emmy_floordiv_i32(t5, (-3)));
    const int t6 = (int)(v_2 * 10.0f);
    whole[((bx * 16) + (tx * 4)) + 2] = ((t6 < 2) ? t6 : emmy_floordiv_i32(t6, (-3)));
    const int t7 = (int)(v_3 * 10.0f);
    whole[((bx * 16) + (tx * 4)) + 3] = ((t7 < 2) ? t7 : emmy_floordiv_i32(t7, (-3)));
    flag[(bx * 16) + (tx * 4)] = (v_0 < 0.0f);
    flag[((bx * 16) + (tx * 4)) + 1] = (v_1 < 0.0f);
    flag[((bx * 16) + (tx * 4)) + 2] = (v_2 < 0.0f);
    flag[((bx * 16) + (tx * 4)) + 3] = (v_3 < 0.0f);
}
