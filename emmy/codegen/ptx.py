"""Device functions that hold the inline PTX of copies, mbarriers, descriptors and packed pairs, by name."""

from __future__ import annotations

_INLINE = "static __device__ __forceinline__"

HELPERS = {
    "emmy_shared": f"""{_INLINE} unsigned emmy_shared(const void* p) {{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}}""",
    "emmy_copy_async": f"""template <int BYTES>
{_INLINE} void emmy_copy_async(void* to, const void* from, bool guard) {{
    const unsigned at = emmy_shared(to);
    const int bytes = guard ? BYTES : 0;
    if constexpr (BYTES == 16) {{
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    }} else {{
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     ::"r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
    }}
}}""",
    "emmy_barrier_init": f"""{_INLINE} void emmy_barrier_init(long long* barrier, unsigned count) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(emmy_shared(barrier)), "r"(count) : "memory");
}}""",
    "emmy_barrier_expect": f"""{_INLINE} void emmy_barrier_expect(long long* barrier, unsigned bytes) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(emmy_shared(barrier)), "r"(bytes) : "memory");
}}""",
    "emmy_barrier_arrive": f"""{_INLINE} void emmy_barrier_arrive(long long* barrier) {{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(emmy_shared(barrier)) : "memory");
}}""",
    "emmy_barrier_wait": f"""{_INLINE} void emmy_barrier_wait(long long* barrier, unsigned parity) {{
    const unsigned at = emmy_shared(barrier);
    unsigned done = 0;
    while (!done) {{
        asm volatile("{{\\n.reg .pred p;\\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
                     "selp.u32 %0, 1, 0, p;\\n}}" : "=r"(done) : "r"(at), "r"(parity) : "memory");
    }}
}}""",
    "emmy_matrix": f"""{_INLINE} unsigned long long emmy_matrix(
    const void* start, unsigned panel, unsigned group, unsigned mode) {{
    const unsigned long long address = (emmy_shared(start) & 0x3ffffu) >> 4;
    return address | (unsigned long long)(panel >> 4) << 16 | (unsigned long long)(group >> 4) << 32 |
           (unsigned long long)mode << 62;
}}""",
    "emmy_half_of": f"""{_INLINE} __half emmy_half_of(unsigned pair, int which) {{
    return __ushort_as_half(static_cast<unsigned short>(pair >> (16 * which)));
}}""",
    "emmy_bfloat_of": f"""{_INLINE} __nv_bfloat16 emmy_bfloat_of(unsigned pair, int which) {{
    return __ushort_as_bfloat16(static_cast<unsigned short>(pair >> (16 * which)));
}}""",
    "emmy_pack_f16": f"""{_INLINE} unsigned emmy_pack_f16(float low, float high) {{
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}}""",
    "emmy_pack_bf16": f"""{_INLINE} unsigned emmy_pack_bf16(float low, float high) {{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}}""",
    "TensorMap": """struct alignas(64) TensorMap {
    char opaque[128];
};""",
}
