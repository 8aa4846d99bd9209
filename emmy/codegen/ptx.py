"""Device functions that hold the inline PTX of copies, mbarriers, descriptors, packed pairs and peers, by name."""

from __future__ import annotations

from emmy.ir.dtype import DType
from emmy.ir.fragment import Atom

_INLINE = "static __device__ __forceinline__"

HELPERS = {
    "emmy_shared": f"""{_INLINE} unsigned emmy_shared(const void* p) {{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}}""",
    "emmy_copy_async": f"""template <int BYTES>
{_INLINE} void emmy_copy_async(unsigned at, const void* from, bool guard) {{
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


def peer_store(name: str, lanes: int) -> str:
    """Function ``name(to, rank, v0, …)``: ``lanes`` floats to where block ``rank`` of the cluster has ``to``."""
    params = ", ".join(f"float v{k}" for k in range(lanes))
    inputs = ", ".join(f'"f"(v{k})' for k in range(lanes))
    places = ", ".join(f"%{k + 1}" for k in range(lanes))
    vector, held = (f".v{lanes}", f"{{{places}}}") if lanes > 1 else ("", places)
    return f"""{_INLINE} void {name}(float* to, unsigned rank, {params}) {{
    unsigned at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(emmy_shared(to)), "r"(rank));
    asm volatile("st.shared::cluster{vector}.f32 [%0], {held};" ::"r"(at), {inputs} : "memory");
}}"""


def ldmatrix(name: str, count: int, trans: str) -> str:
    """Function ``name(r0, …, address)`` that loads ``count`` matrices."""
    params = ", ".join(f"unsigned& r{k}" for k in range(count))
    places = ", ".join(f"%{k}" for k in range(count))
    outputs = ", ".join(f'"=r"(r{k})' for k in range(count))
    return f"""{_INLINE} void {name}({params}, unsigned from) {{
    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{places}}}, [%{count}];"
                 : {outputs} : "r"(from) : "memory");
}}"""


def mma(name: str, atom: Atom) -> str:
    """Function ``name(c…, a…, b…)`` that executes a warp's atom."""
    assert atom.b is not None
    wide = atom.acc == DType.F32
    c = [f"c{k}" for k in range(atom.c.registers if wide else atom.c.registers // 2)]
    a = [f"a{k}" for k in range(atom.a.registers // 2)]
    b = [f"b{k}" for k in range(atom.b.registers // 2)]
    params = [f"{'float' if wide else 'unsigned'}& {r}" for r in c] + [f"unsigned {r}" for r in (*a, *b)]
    places = [f"%{k}" for k in range(len(params))]
    lists = [", ".join(places[x:y]) for x, y in ((0, len(c)), (len(c), len(c) + len(a)), (len(c) + len(a), None))]
    acc, kind = atom.acc.value, atom.operand.value
    outputs = ", ".join(f'"+{"f" if wide else "r"}"({r})' for r in c)
    inputs = ", ".join(f'"r"({r})' for r in (*a, *b))
    return f"""{_INLINE} void {name}(
    {", ".join(params)}) {{
    asm("mma.sync.aligned.m{atom.m}n{atom.n}k{atom.k}.row.col.{acc}.{kind}.{kind}.{acc} "
        "{{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}}, {{{lists[0]}}};"
        : {outputs} : {inputs});
}}"""


def tensor_copy(name: str, rank: int) -> str:
    """Function ``name(to, map, barrier, x0, …)`` that begins a copy of a box; coordinates innermost first."""
    params = ", ".join(f"int x{k}" for k in range(rank))
    places = ", ".join(f"%{k + 3}" for k in range(rank))
    inputs = ", ".join(f'"r"(x{k})' for k in range(rank))
    return f"""{_INLINE} void {name}(void* to, const TensorMap& map, long long* barrier, {params}) {{
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {{{places}}}], [%2];"
                 ::"r"(emmy_shared(to)), "l"(&map), "r"(emmy_shared(barrier)), {inputs} : "memory");
}}"""


def wgmma(name: str, atom: Atom, registers: bool, majors: tuple[str, str]) -> str:
    """Function ``name(c…, a, b, accumulate)`` that begins a warpgroup's atom.

    registers: operand a is in registers, otherwise a descriptor as b is. majors: of a and b (``k`` or ``mn``).
    """
    wide = atom.acc == DType.F32
    c = [f"c{k}" for k in range(atom.c.registers if wide else atom.c.registers // 2)]
    a = [f"a{k}" for k in range(atom.a.registers // 2)] if registers else ["a"]
    params = [f"{'float' if wide else 'unsigned'}& {r}" for r in c]
    params += [f"{'unsigned' if registers else 'unsigned long long'} {r}" for r in a]
    params += ["unsigned long long b", "int accumulate"]
    places = [f"%{k}" for k in range(len(params))]
    first = len(c)
    a_place = "{" + ", ".join(places[first : first + len(a)]) + "}" if registers else places[first]
    transposes = "".join(f", {int(major == 'mn')}" for major in (majors[1:] if registers else majors))
    acc, kind = atom.acc.value, atom.operand.value
    outputs = ", ".join(f'"+{"f" if wide else "r"}"({r})' for r in c)
    inputs = ", ".join(f'"{"r" if registers else "l"}"({r})' for r in a)
    return f"""{_INLINE} void {name}(
    {", ".join(params)}) {{
    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, {places[-1]}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m{atom.m}n{atom.n}k{atom.k}.{acc}.{kind}.{kind} "
        "{{{", ".join(places[:first])}}}, "
        "{a_place}, {places[-2]}, p, 1, 1{transposes};\\n}}"
        : {outputs}
        : {inputs}, "l"(b), "r"(accumulate) : "memory");
}}"""
