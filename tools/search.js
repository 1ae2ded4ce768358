// Ranks sections, statements and documented names; it takes the place of what Sphinx ranks by (findable.py has the index).
// A place counts if each word of the query is in its text, its title or the title of its page; names match as they are typed.
Search._performSearch = (query, searchTerms, excludedTerms) => {
  const { docnames, titles, places, lengths, terms } = Search._index;
  const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
  const stemmer = new Stemmer();
  const stemsOf = (text) => wordsOf(text).map((word) => stemmer.stemWord(word));
  const typed = query.toLowerCase().trim();
  const small = wordsOf(typed).filter((word) => !(stopwords.has ? stopwords.has(word) : stopwords.includes(word)));
  const wanted = [...new Set((small.length ? small : wordsOf(typed)).map((word) => stemmer.stemWord(word)))];
  if (!wanted.length) return [];
  const phrase = stemsOf(typed).join(" ");

  // how well the text of a place matches each word (BM25), and which words its title has
  const mean = lengths.reduce((a, b) => a + b, 0) / lengths.length;
  const hits = new Map();
  const hit = (place, word, score) => {
    if (!hits.has(place)) hits.set(place, new Map());
    const own = hits.get(place);
    own.set(word, Math.max(own.get(word) || 0, score));
  };
  const inTitle = titles.map((title) => new Set(stemsOf(title)));
  wanted.forEach((word) => {
    const exact = Object.hasOwn(terms, word) ? [word] : [];
    // what is still being typed, or part of a name
    const longer = exact.length || word.length < 3 ? [] : Object.keys(terms).filter((term) => term.startsWith(word));
    [...exact, ...longer].forEach((term) => {
      const posts = terms[term].split(" ").map((post) => post.split("x").map(Number)); // steps, see findable.py
      const rare = Math.log(1 + places.length / posts.length);
      let place = 0;
      posts.forEach(([step, count = 1]) => {
        place += step;
        const often = count / (count + 0.4 + 0.8 * (lengths[place] / mean));
        hit(place, word, rare * often * (term === word ? 1 : 0.7));
      });
    });
    places.forEach((place, i) => {
      if (inTitle[place[0]].has(word)) hit(i, word, 0.3);
    });
  });

  const all = [...hits.values()].some((own) => wanted.every((word) => own.has(word))); // else places that have some
  const results = [];
  hits.forEach((own, i) => {
    const missing = wanted.filter((word) => !own.has(word)).length;
    if (missing && (all || missing === wanted.length)) return;
    const [page, anchor, kind, title, text] = places[i];
    let score = [...own.values()].reduce((a, b) => a + b, 0) - 4 * missing;
    const words = stemsOf(title);
    const plain = words.filter((word) => !/^\d+[a-z]?$/.test(word));
    const covered = wanted.filter((word) => words.includes(word)).length / wanted.length;
    const share = wanted.filter((word) => plain.includes(word)).length / Math.max(plain.length, 1);
    score += 6 * covered * covered + 6 * (covered === 1 ? Math.min(share, 1) : 0);
    if (` ${words.join(" ")} `.includes(` ${phrase} `)) score += 4;
    if (`${words.join(" ").replace(/^\d+[a-z]? /, "")} `.startsWith(`${phrase} `)) score += 3;
    if (plain.join(" ") === phrase || words.join(" ") === phrase) score += 8;
    if (kind === "name" && title.toLowerCase() === typed) score += title === query.trim() ? 30 : 6;
    if (kind === "page" && covered === 1) score += 9;
    if (/^\d+[a-z]? /.test(titles[page])) score += 1.5; // chapters before pages of the library
    if (/^(Exercise|Further reading|Things to remember|What the papers say)/.test(title)) score -= 3;
    if (kind === "statement") score += covered;
    const where = kind === "page" ? text : `${titles[page]}${text ? ": " + text : ""}`;
    results.push([docnames[page], title, anchor && kind !== "page" ? "#" + anchor : "", where + "…", score, docnames[page], "text"]);
  });
  results.sort((a, b) => a[4] - b[4]); // what is last is shown first
  return results.slice(-50);
};
