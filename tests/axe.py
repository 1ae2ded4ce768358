"""axe-core in a page of the site: what hinders readers who see little, or who read with a program or the keyboard.

Its rules take seconds on a page with thousands of formulas and coloured words, so formulas become one letter. Pages of
a site are built of the same parts: a page without a part that is new is asked only what it has to answer as a whole,
and of all words that look alike one is enough to tell their colours. The page is of no use afterwards.
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
# One element for each look that was not `known`, with what it stands in; the rest of the page is taken away.
LOOKS = """
const known = new Set(arguments[0]), seen = new Set(), kept = new Set([document.body]);
for (const element of document.body.querySelectorAll("*")) {
  const written = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (!written || element.closest("svg, script, style") || !element.checkVisibility()) continue;
  let look = "", part = element;
  for (let i = 0; i < 4 && part; i++, part = part.parentElement)
    look += `>${part.tagName}.${part.className} ${part.getAttribute("style") || ""}`;
  if (known.has(look) || seen.has(look)) continue;
  seen.add(look);
  for (part = element; part && !kept.has(part); part = part.parentElement) kept.add(part);
}
[...document.body.querySelectorAll("*")].forEach(element => kept.has(element) || element.remove());
return [...seen];
"""
# What scrolls can be reached by the keyboard, by the theme's script, a moment after a page has got another width.
REACHED = """
const done = arguments[0], scrolls = e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "visible";
const wait = tries => tries && [...document.querySelectorAll("[tabindex='-1']")].some(scrolls)
  ? setTimeout(wait, 20, tries - 1) : done();
wait(100);
"""
# The parts of a page: an element in its parent, what is said of both, and whether it is empty.
PARTS = """
const said = e => `${e.tagName}.${e.className} ${[...e.attributes].map(a => a.name).sort()} ${e.getAttribute("role")}`;
return [...new Set([...document.body.querySelectorAll("*:not(svg *)")].map(
  e => `${said(e.parentElement)}>${said(e)} ${!e.textContent.trim()}`))];
"""
AS_A_WHOLE = ["bypass", "document-title", "duplicate-id", "duplicate-id-active", "duplicate-id-aria", "heading-order",
              "html-has-lang", "identical-links-same-purpose", "image-alt", "landmark-one-main", "landmark-unique",
              "link-name", "page-has-heading-one", "region", "scrollable-region-focusable", "skip-link"]
COLOURS = ["color-contrast", "link-in-text-block"]
RUN = """
const [settings, done] = arguments;
const told = (id, node) =>
  `${id}: ${node.html.slice(0, 200)} ${[...node.any, ...node.all, ...node.none].map(c => c.message).join("; ")}`;
axe.run(document, {resultTypes: ["violations"], ...settings})
  .then(({violations}) => done(violations.flatMap(({id, nodes}) =>
    nodes.slice(0, 3).map(node => told(id, node)))),
        error => done([String(error)]));
"""

@cache
def source():
    "The script, from the package that carries it; None where it is not installed."
    found = importlib.util.find_spec("axe_core_python")
    return found and Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def violations(browser, parts, looks, themes=("light", "dark")):
    """What axe finds in the page that is open and prepared: its rules once, those of colours in each theme.

    `parts` and `looks` are those of earlier pages of the site, of this width; the page's own are added.
    """
    browser.execute_script(source())
    browser.execute_async_script(REACHED)
    all_rules = {"rules": {rule: {"enabled": False} for rule in COLOURS}}
    here = set(browser.execute_script(PARTS))
    rules = {"runOnly": AS_A_WHOLE} if here <= parts else all_rules
    parts |= here
    found = browser.execute_async_script(RUN, rules)
    new = browser.execute_script(LOOKS, sorted(looks))
    looks.update(new)
    for theme in themes if new else ():
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        lines = browser.execute_async_script(RUN, {"runOnly": COLOURS})
        found += [f"{theme}: {line}" for line in lines]
    return found
