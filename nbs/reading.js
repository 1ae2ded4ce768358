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
    copy.querySelectorAll("script, .anchor, .copy").forEach((element) => element.remove());
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
    const boxes = ".math, pre, .table, .output, article figure";
    document.querySelectorAll(boxes).forEach((box) => {
      const scrolls = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible";
      if (scrolls && box.tabIndex < 0) box.tabIndex = 0;
    });
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
  addEventListener("toggle", reach, true);         // a fold that was opened

  // The head of a page: light and dark, the place in the book, code that can be copied, links to sections.
  const root = document.documentElement;
  document.querySelector("button.theme")?.addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    if (root.dataset.theme === system) localStorage.removeItem("theme");
    else localStorage.setItem("theme", root.dataset.theme);
  });
  const bar = document.querySelector("#book-sidebar");
  const entry = bar?.querySelector("[aria-current]");
  if (entry) bar.scrollTop = entry.offsetTop - bar.clientHeight / 2;
  document.querySelectorAll("article :is(h2, h3, h4)[id]").forEach((head) => {
    const link = document.createElement("a");
    Object.assign(link, { className: "anchor", href: `#${head.id}`, textContent: "#" });
    link.setAttribute("aria-label", `Link to ${head.textContent}`);
    head.append(link);
  });
  document.querySelectorAll("article div.code").forEach((box) => {
    const button = document.createElement("button");
    Object.assign(button, { className: "copy", textContent: "copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(box.querySelector("pre").textContent);
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    box.append(button);
  });
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  };
  addEventListener("hashchange", open);
  open();

  // The search: Pagefind finds places, each section, statement and name by itself; what is called so comes first.
  const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];
  let index = null;
  const ready = () => (index ||= Promise.all([
    import(new URL("pagefind/pagefind.js", document.baseURI)),
    fetch("pagefind/pins.json").then((answer) => answer.json()),
  ]));
  const bookSearch = async (query) => {
    const [pagefind, pins] = await ready();
    const typed = query.trim().toLowerCase();
    const asked = words(typed);
    const found = await pagefind.search(typed);
    const places = await Promise.all(found.results.slice(0, 60).map(async (result, i) => {
      const { meta, excerpt } = await result.data();
      const title = words(meta.title).filter((word) => !/^\d+[a-z]?$/.test(word));
      const one = (word) => word.replace(/e?s$/, "");
      const fits = (word) => Math.max(0, ...title.map((other) => one(other) === one(word) ? 1 : other.startsWith(word) ? 0.3 : 0));
      const covered = asked.map(fits).reduce((a, b) => a + b, 0) / asked.length;
      let score = (8 * result.score) / found.results[0].score + 6 * covered * covered;
      if (covered === 1) score += (6 * asked.length) / Math.max(title.length, asked.length) + (meta.kind === "page" ? 12 : 0);
      if (meta.title.toLowerCase() === typed) score += meta.kind === "name" ? 16 : 8;
      if (words(meta.title).join(" ") === asked.join(" ")) score += 4;
      const chapter = Number.parseInt(meta.page, 10);
      score += chapter >= 40 ? -4 : chapter >= 0 ? 1.5 : 0; // chapters before other pages, these before the workshop
      if (/^(Exercise|Further reading|Things to remember|What the papers say)/.test(meta.title)) score -= 6;
      return { ...meta, excerpt, score };
    }));
    places.sort((a, b) => b.score - a.score);
    const pin = pins[typed];
    return pin ? [{ ...pin, excerpt: "" }, ...places.filter((place) => place.url !== pin.url)] : places;
  };
  window.bookSearch = bookSearch;

  const form = document.querySelector("form.search");
  const box = form?.elements.q;
  let panel = null, last = "";
  const hide = () => {
    panel?.remove();
    panel = null;
  };
  const tell = async () => {
    const query = (last = box.value);
    if (!words(query).length) return hide();
    const places = await bookSearch(query);
    if (query !== last) return; // something else was typed meanwhile
    hide();
    panel = document.createElement("div");
    panel.id = "book-found";
    panel.setAttribute("role", "region");
    panel.setAttribute("aria-label", "What was found");
    const list = document.createElement("ol");
    places.slice(0, 12).forEach(({ url, title, page, excerpt }) => {
      const item = document.createElement("li");
      const link = Object.assign(document.createElement("a"), { href: url });
      const name = Object.assign(document.createElement("b"), { textContent: title });
      const about = document.createElement("small");
      about.innerHTML = excerpt;
      about.prepend(page && page !== title ? `${page}: ` : "");
      link.append(name, about);
      item.append(link);
      list.append(item);
    });
    panel.append(places.length ? list : Object.assign(document.createElement("p"), { textContent: "Nothing was found." }));
    document.body.append(panel);
  };
  let soon = 0;
  box?.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(tell, 150);
  });
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    await tell();
    panel?.querySelector("a")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (event.key === "/" && !event.target.matches?.("input, select, textarea")) {
      event.preventDefault();
      box?.focus();
    }
  });
  document.addEventListener("click", (event) => event.target.closest?.("#book-found, form.search") || hide());
  const query = new URLSearchParams(location.search).get("q");
  if (query && box) {
    box.value = query;
    tell();
  }
})();
