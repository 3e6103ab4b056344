#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/steps.svg, the plot of the README, from the last table of result.md, and prints the README's ratios.

  experiments/equal_bits/plot.py
"""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parents[1] / "docs" / "steps.svg"
SECTION = "exact all-reduces by ring"  # the one run that has all six networks
NETWORKS = ["clean", "congested", "incast", "oversubscribed", "gray", "wan"]
BARS = [  # (transport in result.md, legend, colour)
    ("tcp", "TCP cubic, 32 bits", "#9aa5b1"),
    ("tcp-bbr", "TCP bbr, 32 bits", "#c3cbd3"),
    ("tcp-fp16", "TCP cubic, 16 bits (torch's fp16 hook)", "#e0a458"),
    ("spillway-16", "Spillway, 16 bits", "#5b9bd5"),
    ("spillway", "Spillway, 5 bits", "#1f5f99"),
]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LONGEST_MS = 860, 330, 52, 64, 34, 800


def read_steps(text):
    """Median step in ms by (network, transport)."""
    section = text[text.index(SECTION) :]
    rows = re.findall(r"^\| ([\w-]+) \| ([\w-]+) \| (\d+) \|", section, re.MULTILINE)
    return {(network, transport): int(milliseconds) for network, transport, milliseconds in rows}


def element(name, text="", **attributes):
    joined = "".join(f" {key.rstrip('_').replace('_', '-')}='{value}'" for key, value in attributes.items())
    return f"<{name}{joined}>{text}</{name}>"


def draw(steps):
    plot_height = HEIGHT - TOP - BOTTOM
    group = (WIDTH - LEFT - 10) / len(NETWORKS)
    bar = group * 0.84 / len(BARS)

    def y_of(milliseconds):
        return TOP + plot_height * (1 - min(milliseconds, LONGEST_MS) / LONGEST_MS)

    parts = [
        "<style>svg{color:#222;background:#fff}text{font:11px system-ui,sans-serif;fill:currentColor}"
        ".title{font-size:14px;font-weight:600}.grid{stroke:currentColor;stroke-opacity:.15}</style>",
        element("text", "Median training step, ms (4 ranks, emulated links of 250 Mb/s; wan 500 Mb/s, 10 ms)",
                x=LEFT, y=18, class_="title"),
    ]
    x = LEFT
    for _, legend, colour in BARS:
        parts.append(element("rect", x=x, y=32, width=11, height=11, fill=colour))
        parts.append(element("text", legend, x=x + 15, y=41.5))
        x += 30 + 6.1 * len(legend)
    for tick in range(0, LONGEST_MS + 1, 200):
        parts.append(element("line", x1=LEFT, x2=WIDTH - 10, y1=f"{y_of(tick):.1f}", y2=f"{y_of(tick):.1f}", class_="grid"))
        parts.append(element("text", tick, x=LEFT - 6, y=f"{y_of(tick) + 4:.1f}", text_anchor="end"))
    for place, network in enumerate(NETWORKS):
        left = LEFT + group * (place + 0.08)
        for index, (transport, _, colour) in enumerate(BARS):
            milliseconds = steps[network, transport]
            top = y_of(milliseconds)
            middle = left + bar * (index + 0.5)
            parts.append(element("rect", x=f"{left + bar * index:.1f}", y=f"{top:.1f}", width=f"{bar - 2:.1f}",
                                 height=f"{TOP + plot_height - top:.1f}", fill=colour))
            label = f"{milliseconds:,}" + ("↑" if milliseconds > LONGEST_MS else "")
            parts.append(element("text", label, x=f"{middle - 1:.1f}", y=f"{top - 3:.1f}", text_anchor="middle",
                                 style="font-size:9px"))
        parts.append(element("text", network, x=f"{left + bar * len(BARS) / 2:.1f}", y=HEIGHT - 14, text_anchor="middle"))
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' "
            "aria-label='Median training step by network and transport'>" + "".join(parts) + "</svg>\n")


def print_ratios(steps):
    def row(title, ours, *theirs):
        ratios = [steps[network, ours] / min(steps[network, rival] for rival in theirs) for network in NETWORKS]
        print(f"| {title} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")

    print("| | " + " | ".join(f"`{network}`" for network in NETWORKS) + " |")
    print("|---" * (len(NETWORKS) + 1) + "|")
    row("exact by ring over the faster TCP, 32 bits", "spillway-exact", "tcp", "tcp-bbr")
    row("16 bits over cubic with the fp16 hook", "spillway-16", "tcp-fp16")
    row("5 bits over the same codec and collectives on cubic", "spillway", "spillway-over-tcp")
    row("5 bits over cubic with the fp16 hook", "spillway", "tcp-fp16")


def main():
    steps = read_steps((HERE / "result.md").read_text(encoding="utf-8"))
    OUT.write_text(draw(steps), encoding="utf-8")
    print_ratios(steps)


if __name__ == "__main__":
    main()
