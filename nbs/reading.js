// Help while reading: a glance at the theorem, equation or figure that a link leads to, and keys for what scrolls.
// Without it every link still leads there.
(() => {
  const LABELLED = /#(thm|lem|prp|cor|cnj|def|exm|exr|alg|eq|fig|tbl)-[\w-]+$/;
  const WHOLE = ".book-statement, .book-equation, figure, table";
  const pages = new Map();
  let glance = null, asked = null, timer = 0;

  const pageOf = (url) => {
    const address = url.href.split("#")[0];
    if (address === location.href.split("#")[0]) return Promise.resolve(document);
    if (!pages.has(address)) {
      pages.set(address, fetch(address).then((answer) => answer.text())
        .then((text) => new DOMParser().parseFromString(text, "text/html")));
    }
    return pages.get(address);
  };

  const contentOf = (page, id) => {
    const target = page.getElementById(id);
    if (!target) return null;
    const beside = target.parentElement; // where an empty element marks the place, before what it names or beside it
    const next = beside.nextElementSibling;
    const whole = target.closest(WHOLE) || target.querySelector(WHOLE)
      || (beside.textContent.trim() ? beside : next?.querySelector("figure") || next);
    if (!whole || whole.textContent.length > 6000) return null;
    const copy = document.importNode(whole, true);
    [copy, ...copy.querySelectorAll("[id]")].forEach((element) => element.removeAttribute("id"));
    copy.querySelectorAll("script, .headerlink, .copybtn").forEach((element) => element.remove());
    return copy;
  };

  const close = () => {
    clearTimeout(timer);
    asked?.removeAttribute("aria-describedby");
    glance?.remove();
    glance = asked = null;
  };
  const closeSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(close, 250);
  };

  const place = (link) => {
    const at = [...link.getClientRects()].pop() || link.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = glance;
    const below = at.bottom + 8 + height <= innerHeight || at.top < height + 16;
    glance.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
    glance.style.top = `${below ? at.bottom + 8 : at.top - height - 8}px`;
  };

  const show = async (link) => {
    let page;
    try {
      page = await pageOf(new URL(link.href));
    } catch {
      return; // opened as a file, pages may not read each other
    }
    const content = asked === link && contentOf(page, decodeURIComponent(link.hash.slice(1)));
    if (!content) return;
    glance = document.createElement("div");
    glance.className = "book-glance";
    glance.id = "book-glance";
    glance.setAttribute("role", "tooltip");
    glance.append(content);
    glance.addEventListener("pointerenter", () => clearTimeout(timer));
    glance.addEventListener("pointerleave", closeSoon);
    (link.closest("article, main") || document.body).append(glance);
    link.setAttribute("aria-describedby", glance.id);
    place(link);
  };

  const ask = (event) => {
    if (event.pointerType === "touch") return;
    const link = event.target.closest?.("article a[href], main a[href]");
    if (!link || !LABELLED.test(link.href) || link.closest(".book-glance")) return;
    if (link === asked) return clearTimeout(timer);
    close();
    asked = link;
    timer = setTimeout(() => show(link), event.type === "focusin" ? 0 : 200);
  };
  const leave = (event) => {
    if (asked && event.target.closest?.("a") === asked) closeSoon();
  };

  document.addEventListener("pointerover", ask);
  document.addEventListener("focusin", ask);
  document.addEventListener("pointerout", leave);
  document.addEventListener("focusout", leave);
  document.addEventListener("keydown", (event) => event.key === "Escape" && close());

  // What scrolls to the side can be reached and scrolled with the keyboard.
  const reach = () => {
    const boxes = "div.math, pre, div.sourceCode, main table, .pst-scrollable-table-container, .output.text_html";
    document.querySelectorAll(boxes).forEach((box) => {
      const scrolls = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible";
      if (scrolls && box.tabIndex < 0) box.tabIndex = 0;
    });
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);

  // Quarto opens a folded box by a click on its head. A key does the same.
  const FOLD = ".callout-header[data-bs-toggle]";
  document.querySelectorAll(FOLD).forEach((head) => {
    head.setAttribute("role", "button");
    head.tabIndex = 0;
  });
  document.addEventListener("keydown", (event) => {
    if (!["Enter", " "].includes(event.key) || !event.target.matches?.(FOLD)) return;
    event.preventDefault();
    event.target.click();
  });
})();
