"""The look of a page: colours by name in light and dark, letters, tables, pictures, and how it prints."""

from __future__ import annotations

from typing import Final

from infcalc.report.palette import SERIES

LIGHT: Final = {
    "page": "#ffffff",
    "panel": "#f5f7fa",
    "text": "#1c2430",
    "soft": "#55606e",
    "line": "#d5dbe3",
    "grid": "#e6eaef",
    "link": "#1a5fb4",
    "good": "#0a6b3d",
    "good-ground": "#e3f5ea",
    "bad": "#a3211f",
    "bad-ground": "#fdeaea",
    "alert": "#c4302b",
    "rest": "#c3cad3",
    "band": ".17",
}
DARK: Final = {
    "page": "#12161c",
    "panel": "#1b212a",
    "text": "#e6eaf0",
    "soft": "#a6b0bd",
    "line": "#39424e",
    "grid": "#2a323d",
    "link": "#8ab8ff",
    "good": "#7fdba6",
    "good-ground": "#12321f",
    "bad": "#ff9d98",
    "bad-ground": "#401a1a",
    "alert": "#ff7a73",
    "rest": "#5a6572",
    "band": ".34",
}


def style_sheet() -> str:
    """Return the style sheet of a page."""
    light, dark = _named({**LIGHT, **{f"s{index}": colour for index, colour in enumerate(SERIES)}}), _named(DARK)
    series = "".join(
        f".s{index}{{fill:var(--s{index})}}.l{index}{{stroke:var(--s{index});fill:none;stroke-width:2.2}}"
        for index in range(len(SERIES))
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{_compact(_SHEET)}{series}{_compact(_SMALL)}{_compact(_PRINT)}"
    )


def _named(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def _compact(sheet: str) -> str:
    return "".join(line.strip() for line in sheet.splitlines())


_SHEET = """
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
header,main,footer{max-width:74rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:2.5rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 1rem;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.35rem;line-height:1.3;margin:0 0 .9rem;padding-top:1.9rem}
h3{font-size:1rem;margin:0 0 .4rem}
p,ul{margin:0 0 1rem;max-width:46rem}
p,li,td,dd,figcaption{overflow-wrap:break-word}
li{margin-bottom:.3rem}
a{color:var(--link)}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.2rem;margin:0 0 1.2rem;padding:1rem 1.2rem;
 background:var(--panel);border:1px solid var(--line);border-radius:8px}
.facts dt{color:var(--soft)}
.facts dd{margin:0;min-width:0;overflow-wrap:anywhere}
.status{display:flex;flex-wrap:wrap;gap:.5rem;margin:0 0 1.2rem}
.status span{padding:.15rem .75rem;border-radius:999px;font-weight:600;border:1px solid currentColor}
.good{color:var(--good);background:var(--good-ground)}
.bad{color:var(--bad);background:var(--bad-ground)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;list-style:none;padding:0;margin:0;max-width:none}
#verdict>p{font-size:1.08rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(10.5rem,1fr));gap:.8rem;margin:0 0 1.6rem}
dl.tile{margin:0;background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem}
.tile dt{color:var(--soft);font-size:.85rem}
.tile dd{margin:0}
.tile .value{font-size:1.5rem;font-weight:650;line-height:1.35;font-variant-numeric:tabular-nums}
.tile .note{color:var(--soft);font-size:.82rem;line-height:1.4}
figure{margin:0 0 1.8rem}
figcaption{color:var(--soft);font-size:.88rem;max-width:46rem;margin-top:.4rem}
.scroll{overflow-x:auto;margin:0 0 1.8rem}
.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;line-height:1.4;min-width:50%}
th,td{padding:.35rem .6rem;text-align:right;vertical-align:top;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{padding-left:.2rem}
thead th{border-bottom:2px solid var(--line);color:var(--soft);font-weight:600;vertical-align:bottom}
.text{text-align:left}
td{white-space:nowrap}
td.some{white-space:normal;min-width:9.5rem}
td.long{white-space:normal;min-width:14rem;max-width:34rem;overflow-wrap:anywhere}
.lines p{margin:0 0 .2rem;font-size:.9rem;color:var(--soft)}
pre{margin:0 0 1rem;padding:.7rem .9rem;background:var(--panel);border:1px solid var(--line);border-radius:6px;
 white-space:pre-wrap;overflow-wrap:anywhere;font:.84rem/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
footer{color:var(--soft);font-size:.85rem;padding-top:2rem;padding-bottom:3rem}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--text);font-family:inherit}
svg .tick{fill:var(--soft);font-size:11.5px}
svg .name{fill:var(--soft);font-size:12px}
svg .strong{font-weight:700}
svg .label,svg .strong{paint-order:stroke;stroke:var(--page);stroke-width:3px;stroke-linejoin:round}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .axis{stroke:var(--soft);stroke-width:1.2}
svg .guide{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}
svg .roof{stroke:var(--text);stroke-width:2.2;fill:none;stroke-linejoin:round}
svg .band{fill:var(--s0);fill-opacity:var(--band);stroke:var(--s0);stroke-opacity:.45;stroke-width:1}
svg .limit{stroke:var(--alert);stroke-width:1.6;stroke-dasharray:7 4}
svg .alert{stroke:var(--alert);stroke-width:2;fill:none}
svg .ring{fill:none;stroke:var(--text);stroke-width:1.8}
svg .chosen{fill:var(--s2);stroke:var(--text);stroke-width:1.6}
svg .mark,svg .piece{stroke:var(--text);stroke-width:.8}
svg .rest{fill:var(--rest)}
.narrow{display:none}
"""
_SMALL = """
@media (max-width:540px){
header,main,footer{padding-left:1rem;padding-right:1rem}
header{padding-top:1.5rem}
h1{font-size:1.5rem}
dl.facts{grid-template-columns:1fr;gap:0}
.facts dd{margin-bottom:.5rem}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:.6rem}
.tile{padding:.6rem .7rem}
.tile .value{font-size:1.2rem}
.wide{display:none}
.narrow{display:block}
}
"""
_PRINT = """
@page{size:A4;margin:15mm 14mm}
@media print{
html{font-size:10.5pt}
body{font-size:10pt}
header,main,footer{max-width:none;padding-left:0;padding-right:0}
header{padding-top:0}
nav{display:none}
h2{padding-top:1.4rem;break-after:avoid}
h3{break-after:avoid}
figure,.tile,.facts,pre,tr{break-inside:avoid}
.scroll{overflow:visible}
table{font-size:7.6pt;min-width:0}
thead{display:table-header-group}
th,td{padding:.18rem .4rem}
td.text{white-space:normal}
td.some,td.long{min-width:0;max-width:none}
.wide{display:block}
.narrow{display:none}
a{color:inherit;text-decoration:none}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
"""
