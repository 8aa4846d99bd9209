"""Register reads of a loop: what costs a cycle and what does not."""

from __future__ import annotations

from benchmarks.register_banks import longest_loop, play


def loop(*instructions: str) -> str:
    lines = [f"        /*{16 * n:04x}*/                   {text} ;" for n, text in enumerate(instructions)]
    back = f"        /*{16 * len(lines):04x}*/               @P0 BRA `(.L_x_1) ;"
    return "\n".join([".L_x_1:", *lines, back])


def test_reads_of_both_banks_and_a_reused_register_cost_nothing() -> None:
    body = [f"FFMA R{8 + n}, R2.reuse, R{41 + 2 * n}, R{8 + 2 * n}" for n in range(16)]
    found = play(longest_loop(loop(*body)))
    assert (found.ffma, found.instructions) == (16, 17)
    assert found.reads == 2 * 16 + 1
    assert found.cycles == found.instructions


def test_three_reads_of_one_bank_hold_the_warp() -> None:
    body = [f"FFMA R{9 + 2 * n}, R2, R{42 + 2 * n}, R{8 + 2 * n}" for n in range(16)]
    found = play(longest_loop(loop(*body)))
    assert found.reads == 3 * 16
    assert found.cycles >= 3 * 16 - 2
    assert found.share < 0.4


def test_the_longest_loop_is_looked_at_and_labels_of_a_second_function_are_not() -> None:
    short, long = loop("FFMA R1, R2, R3, R1"), loop(*["IADD3 R1, R2, R3, RZ"] * 5)
    text = long.replace("L_x_1", "L_x_7") + "\n" + short
    assert len(longest_loop(text)) == 6
    assert longest_loop("nothing") == []
