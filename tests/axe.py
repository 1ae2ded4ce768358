"""axe-core in a page of the site: what hinders readers who see little, or who read with a program or the keyboard.

Its rules take seconds on a page with thousands of formulas and coloured words, so formulas become one letter, and of
all words that look alike one is enough to tell its contrast. The page is of no use afterwards.
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
# One element for each look, with what it stands in; the rest of the page is taken away.
LOOKS = """
const seen = new Set(), kept = new Set([document.body]);
for (const element of document.body.querySelectorAll("*")) {
  const written = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (!written || element.closest("svg, script, style")) continue;
  let look = "", part = element;
  for (let i = 0; i < 4 && part; i++, part = part.parentElement) look += `>${part.tagName}.${part.className}`;
  if (seen.has(look)) continue;
  seen.add(look);
  for (part = element; part && !kept.has(part); part = part.parentElement) kept.add(part);
}
[...document.body.querySelectorAll("*")].forEach(element => kept.has(element) || element.remove());
return seen.size;
"""
RUN = """
const [settings, done] = arguments;
axe.run(document, {resultTypes: ["violations"], ...settings})
  .then(({violations}) => done(violations.flatMap(({id, nodes}) => nodes.slice(0, 3).map(node =>
    `${id}: ${node.html.slice(0, 200)} ${[...node.any, ...node.all, ...node.none].map(c => c.message).join("; ")}`))),
        error => done([String(error)]));
"""


@cache
def source():
    "The script, from the package that carries it; None where it is not installed."
    found = importlib.util.find_spec("axe_core_python")
    return found and Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def violations(browser, themes=("light", "dark")):
    "What axe finds in the page that is open and prepared: its rules once, contrast in each theme."
    browser.execute_script(source())
    found = browser.execute_async_script(RUN, {"rules": {"color-contrast": {"enabled": False}}})
    browser.execute_script(LOOKS)
    for theme in themes:
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        found += [f"{theme}: {line}" for line in browser.execute_async_script(RUN, {"runOnly": ["color-contrast"]})]
    return found
