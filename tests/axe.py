"""axe-core in a page of the site: what hinders readers who see little, or who read with a program or the keyboard.

Its rules take seconds on a page with thousands of formulas and coloured words, so formulas become one letter, and since
pages of a site are built of the same parts, only those parts are asked which no page before had; blocks of the page
without one are taken out, since axe reads all that is there.
"""
import importlib.util
from functools import cache
from pathlib import Path

PREPARE = """
const style = document.createElement("style");
style.textContent = "* { transition: none !important; animation: none !important; }";
document.head.append(style);
document.querySelectorAll("math").forEach(math => math.replaceWith("x"));
document.querySelectorAll("details").forEach(fold => fold.open = true);
"""
# The theme's script lets the keyboard reach what scrolls, a moment after folds were opened.
REACHED = "const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 20));"
# One element for each part that is not `known`: what is said of it and its parent, whether it is empty, whether it
# scrolls; and where words are written, how what they stand in looks.
FRESH = """
const known = new Set(arguments[0]), seen = new Set();
const said = e => `${e.tagName}.${e.className} ${[...e.attributes].map(a => a.name).sort()} ${e.getAttribute("role")}`;
const scrolls = e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "visible";
window.fresh = [...document.body.querySelectorAll("*:not(svg *)")].filter(element => {
  let part = `${said(element.parentElement)}>${said(element)} ${!element.textContent.trim()} ${scrolls(element)}`;
  if ([...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()) && element.checkVisibility())
    for (let i = 0, e = element; i < 4 && e; i++, e = e.parentElement)
      part += `>${e.tagName}.${e.className} ${e.getAttribute("style") || ""}`;
  return !known.has(part) && !seen.has(part) && seen.add(part);
});
if (known.size)         // the first page stays whole
  document.querySelectorAll("article > *, nav > *, li, tbody > tr").forEach(block => {
    if (!window.fresh.some(element => block.contains(element))) block.remove();
  });
return [...seen];
"""
RUN = """
const [where, rules, done] = arguments;
const told = (id, node) =>
  `${id}: ${node.html.slice(0, 200)} ${[...node.any, ...node.all, ...node.none].map(c => c.message).join("; ")}`;
axe.run(where === "fresh" ? {include: window.fresh} : document, {resultTypes: ["violations"], preload: false, ...rules})
  .then(({violations}) => done(violations.flatMap(({id, nodes}) =>
    nodes.slice(0, 3).map(node => told(id, node)))),
        error => done([String(error)]));
"""


@cache
def source():
    "The script, from the package that carries it; None where it is not installed."
    found = importlib.util.find_spec("axe_core_python")
    return found and Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def violations(browser, known):
    """What axe finds in the page that is open: its rules, and those of colours in the dark as well.

    `known` are the parts of earlier pages of the site; the page's own are added. The first is asked as a whole.
    """
    browser.execute_script(PREPARE)
    browser.execute_async_script(REACHED)
    new = browser.execute_script(FRESH, sorted(known))
    if not new:
        return []
    browser.execute_script(source())
    browser.execute_script("document.documentElement.dataset.theme = 'light'")
    found = browser.execute_async_script(RUN, "fresh" if known else "all", {})
    browser.execute_script("document.documentElement.dataset.theme = 'dark'")
    colours = {"runOnly": ["color-contrast", "link-in-text-block"]}
    found += [f"in the dark: {line}" for line in browser.execute_async_script(RUN, "fresh", colours)]
    known.update(new)
    return found
