// SPDX-License-Identifier: Apache-2.0
//
// How the page of a comparison looks, in light and dark, on screens wide and narrow and on paper.
#pragma once

namespace spillway::compare {

inline constexpr const char* kPageStyle = R"(
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6675; --line: #dde2e8;
  --ground: #f6f7f9; --card: #ffffff; --note: #fff6e0; --note-line: #e69f00; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8ebef; --soft: #9aa5b4; --line: #333c49; --ground: #12161c; --card: #1a2029;
    --note: #2c2613; --note-line: #e69f00; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
.eyebrow { margin: 0; color: var(--soft); font-size: .8rem; letter-spacing: .08em;
  text-transform: uppercase; }
h1 { margin: .2rem 0 1rem; font-size: 1.9rem; line-height: 1.2; font-weight: 650; }
h2 { margin: 0 0 .75rem; font-size: 1.15rem; font-weight: 650; }
.command { margin: 0; padding: .7rem .9rem; white-space: pre-wrap; overflow-wrap: anywhere;
  background: var(--card);
  border: 1px solid var(--line); border-radius: 8px;
  font: .85rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
section { margin-top: 1.5rem; padding: 1.25rem 1.4rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; }
.notes { background: var(--note); border-color: var(--note-line); }
.notes ul { margin: 0; padding-left: 1.2rem; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th[scope=row] { text-align: left; font-weight: 400; color: var(--soft); }
tbody tr:last-child > * { border-bottom: 0; }
.best { font-weight: 700; }
.none, .ratio { color: var(--soft); }
.ratio { display: inline-block; min-width: 4.2em; font-size: .85em; font-weight: 400; }
.chip { display: inline-block; width: .8em; height: .8em; margin-right: .45em; border-radius: 3px; }
.small { margin: .75rem 0 0; color: var(--soft); font-size: .85rem; }
figure { margin: 0; }
figure + figure { margin-top: 1rem; }
figure svg { display: block; width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.5rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { background: none; } section { break-inside: avoid; } }
)";

}  // namespace spillway::compare
