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
# What Quarto itself brings along, by rule and by what stands in the element: the style sheets of its two schemes have
# one name, its sidebar, each switch in it and the bar above it on a phone are navigation without a name of their own.
# Names of the library are headings of the third level, as nbdev documents them, on pages without sections too.
KNOWN = [("duplicate-id", 'class="quarto-color-scheme"'), ("landmark-unique", 'id="quarto-sidebar"'),
         ("landmark-unique", 'class="sidebar-item-toggle'), ("landmark-unique", 'class="quarto-secondary-nav"'),
         ("heading-order", '<h3 class="anchored" data-anchor-id="')]
RUN = """
const [settings, known, done] = arguments;
const ours = (id, node) => !known.some(([rule, mark]) => rule === id && node.html.includes(mark));
const told = (id, node) =>
  `${id}: ${node.html.slice(0, 200)} ${[...node.any, ...node.all, ...node.none].map(c => c.message).join("; ")}`;
axe.run(document, {resultTypes: ["violations"], ...settings})
  .then(({violations}) => done(violations.flatMap(({id, nodes}) =>
    nodes.filter(node => ours(id, node)).slice(0, 3).map(node => told(id, node)))),
        error => done([String(error)]));
"""
# Sphinx's theme has its colours by an attribute, Quarto by other style sheets, which arrive later.
THEME = """
const [theme, done] = arguments;
if (!window.quartoToggleColorScheme) {
  document.documentElement.dataset.theme = theme;
  return done(true);
}
if (document.body.classList.contains("quarto-dark") !== (theme === "dark")) window.quartoToggleColorScheme();
const sheets = [...document.querySelectorAll("link.quarto-color-scheme[rel=stylesheet]")];
const wait = () => sheets.every(link => link.sheet) ? requestAnimationFrame(() => done(
  document.body.classList.contains("quarto-dark") === (theme === "dark"))) : setTimeout(wait, 20);
wait();
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
    found = browser.execute_async_script(RUN, rules, KNOWN)
    new = browser.execute_script(LOOKS, sorted(looks))
    looks.update(new)
    for theme in themes if new else ():
        assert browser.execute_async_script(THEME, theme), f"the page does not become {theme}"
        lines = browser.execute_async_script(RUN, {"runOnly": COLOURS}, KNOWN)
        found += [f"{theme}: {line}" for line in lines]
    return found
