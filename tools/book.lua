-- The one converter of the book: `pandoc lua tools/book.lua WORK.json`, which tools/book.py writes and runs.
--
-- Text is pandoc's Markdown with Quarto's labels. All cells are read and their labels numbered first (chapter 2's third
-- theorem is Theorem 2.3 wherever it is named); then references become links, blocks what the page shows, and pages are
-- written: as HTML, or as Markdown for Jupyter. What the grammar does not know is an error that names notebook and cell:
-- an unknown class, label or key, raw HTML or TeX, a mark that is left in the text.
local stringify, List, path = pandoc.utils.stringify, pandoc.List, pandoc.path
local STATEMENTS = {thm="Theorem", lem="Lemma", cor="Corollary", prp="Proposition", def="Definition", exm="Example",
                    exr="Exercise", rem="Remark"}
local NUMBERED = {eq="equation", fig="Figure", tbl="Table"}
for kind, name in pairs(STATEMENTS) do NUMBERED[kind] = name end
local CALLOUTS = {note=true, tip=true, warning=true, important=true, caution=true}
-- each word more costs the parser a tenth of a millisecond a cell; what else pandoc knows is refused below
local GRAMMAR = "markdown+table_attributes-auto_identifiers-implicit_header_references-fancy_lists"
  .. "-native_divs-native_spans"
local JUPYTER = "commonmark+pipe_tables+tex_math_dollars+raw_html+strikeout"

local function contents(file) local f = assert(io.open(file)); local text = f:read("a"); f:close(); return text end
local function save(file, text) local f = assert(io.open(file, "w")); f:write(text); f:close() end
local work = pandoc.json.decode(contents(arg[1]), false)
local jupyter = work.mode == "jupyter"
local errors, labels, keys, pages, here, current = {}, {}, {}, {}, "", nil
for _, p in ipairs(work.pages) do pages[p.file] = p end
for _, r in ipairs(pandoc.read(contents(work.bibliography), "bibtex").meta.references) do
  keys[stringify(r.id)] = true
end

local function complain(said)
  local line = here .. ": " .. said
  if not List(errors):includes(line) then errors[#errors + 1] = line end
end
local function heeded(call, ...)                        -- a warning of pandoc's is an error
  local said, made = pandoc.log.silence(call, ...)
  for _, m in ipairs(pandoc.json.decode(pandoc.json.encode(said), false)) do
    if m.verbosity == "WARNING" then complain((m.pretty:gsub("\n", " "))) end
  end
  return made
end
local function raw(text) return pandoc.RawBlock("html", text) end
local function parsed(text)                             -- an equation that begins a sentence is an Equation
  text = text:gsub("([.!?]%s+)@eq%-", "%1@Eq-"):gsub("^@eq%-", "@Eq-"):gsub("(\n\n)@eq%-", "%1@Eq-")
  return heeded(pandoc.read, text, GRAMMAR).blocks
end

-- reading: what may stand in a cell, and its labels in the order of the page

local function label(id, kinds, text)
  local kind = id:match("^(%l+)%-%l*%d*[%l%d-]*$")
  if not (kind and kinds[kind]) or id:match("%-%-") or id:match("%-$") then
    return complain("label #" .. id .. " is not one of its kind followed by lower-case words joined by hyphens")
  elseif labels[id] then return complain("label #" .. id .. " is taken by " .. labels[id].where) end
  local target = {id=id, page=current, where=here, text=text}
  if kind ~= "sec" then
    current.counts[kind] = (current.counts[kind] or 0) + 1
    target.number = (current.chapter ~= "" and current.chapter .. "." or "") .. current.counts[kind]
    target.name = NUMBERED[kind] .. " " .. (kind == "eq" and "(" .. target.number .. ")" or target.number)
  end
  labels[id] = target
end

local function unknown(said) return function() complain(said .. " is not part of the grammar") end end
local STRAY = {":::", "{#", "%$%$", "{{<", "```", "%?@", "%[%^", "{=", "%]%[", "%]%(", "%+%-%-", "^#+$", "{%."}
local UNPORTABLE = {"\\tag%f[%A]", "\\label%f[%A]", "\\e?q?ref%f[%A]", "\\r?e?newcommand%f[%A]", "\\def%f[%A]",
                    "\\begin{%a*smallmatrix}", "\\begin{equation%*?}", "\\begin{align%*?}"}
local seen = {traverse="topdown",
  Div = function(d)
    if d.identifier ~= "" then
      if #d.classes > 0 or #d.attributes > 0 then complain("a statement carries its label only: #" .. d.identifier) end
      label(d.identifier, STATEMENTS)
    elseif not d.classes:includes("proof") then
      local kind = (d.classes[1] or ""):match("^callout%-(%l+)$")
      local classes = table.concat(d.classes, " .")
      if #d.classes ~= 1 or not CALLOUTS[kind] then complain("unknown kind of block {." .. classes .. "}") end
      for key, value in pairs(d.attributes) do
        if key ~= "collapse" or value ~= "true" then complain("a callout takes collapse=\"true\" only, not " .. key) end
      end
    end
    for i, b in ipairs(d.content) do
      if b.t == "Header" and (i > 1 or d.classes:includes("proof")) then
        complain("a heading inside ::: is its title and stands first in it")
      end
    end
  end,
  Header = function(h)
    if #h.classes > 0 or #h.attributes > 0 then complain("a heading takes a label only") end
    if stringify(h):match("[-–]$") then complain("nbdev drops headings that end in a dash") end
    if h.identifier ~= "" then label(h.identifier, {sec=true}, h.content) end
  end,
  Table = function(t) if t.identifier ~= "" then label(t.identifier, {tbl=true}) end end,
  CodeBlock = function(c)
    if #c.attributes > 0 or #c.classes > 1 or (c.classes[1] or ""):match("[{}]") then
      complain("code with attributes is not part of the grammar")
    end
  end,
  Link = function(a)
    if a.attr ~= pandoc.Attr() and not a.classes:includes("uri") and not a.classes:includes("email") then
      complain("attributes on a link are not part of the grammar")
    end
  end,
  Math = function(m)
    local found
    for _, mark in ipairs(UNPORTABLE) do found = found or m.text:match(mark) end
    if found then complain(found .. " does not work everywhere; use aligned, a {#eq-label}, and plain commands") end
  end,
  Str = function(s)
    local id = s.text:match("^{#(eq%-[%w-]+)}$")
    if id then return label(id, {eq=true}) end
    for _, mark in ipairs(STRAY) do
      if s.text:match(mark) then complain("a mark of the source is left in the text: “" .. s.text .. "”") end
    end
  end,
  Inlines = function(all)                               -- what would have begun a list or a quote after an empty line
    for i = 2, #all - 1 do
      if all[i - 1].t == "SoftBreak" and all[i + 1].t == "Space" and all[i].t == "Str"
        and (all[i].text:match("^[-*+>]$") or all[i].text:match("^%d+[.)]$")) then
        complain("a list or quote needs a blank line above it")
      end
    end
    if all[1] and all[1].t == "Str" and all[1].text == ":" then
      complain("a caption needs a pipe table and a blank line above it")
    end
  end,
  RawInline = unknown("raw HTML or TeX"), RawBlock = unknown("raw HTML or TeX"),
  LineBlock = unknown("a table without |---|"), DefinitionList = unknown("a line that begins with a colon"),
  Span = unknown("a span with attributes"), Image = unknown("a picture that no cell shows"),
  Note = unknown("a footnote"), Superscript = unknown("^…^"), Subscript = unknown("~…~"),
}

local function rows(text)                               -- pandoc drops what is too much in a row
  local code, math, width
  for line in text:gsub("\\|", ""):gmatch("[^\n]*") do
    if line:match("^%s*```") then code = not code end
    if line:match("^%s*%$%$%s*$") then math = not math end
    local bars = not code and not math and line:match("^%s*|") and select(2, line:gsub("|", ""))
    if bars and width and bars ~= width then
      complain("a row of a table has " .. bars - 1 .. " cells, its head " .. width - 1)
    end
    if bars and width and not line:match("|%s*$") then complain("a row of a table ends with |") end
    width = bars and (width or bars)
  end
end

local function read(cell)
  if cell.kind == "markdown" then
    rows(cell.text)
    local _, fences = ("\n" .. cell.text):gsub("\n%s*```", "")
    if fences % 2 == 1 then complain("this ``` code is never closed") end
    cell.blocks = parsed(cell.text)
    cell.blocks:walk(seen)
  elseif cell.kind == "code" then
    if cell.label then label(cell.label, {fig=true}) end
    if cell.caption then
      cell.caption = pandoc.utils.blocks_to_inlines(parsed(cell.caption))
      pandoc.Blocks{pandoc.Plain(cell.caption)}:walk(seen)
    end
  end
end

-- references, citations, links

local function href(page, anchor)
  local hash = anchor and "#" .. anchor or ""
  if jupyter then return work.url .. "/" .. page.name .. ".html" .. hash end
  return (page == current and hash ~= "" and "" or page.name .. ".html") .. hash
end

local function unlinked(content) return content:walk{Link=function(a) return a.content end} end

local function reference(target, begins)
  local text = target.name and pandoc.Inlines(target.name) or unlinked(pandoc.Inlines(target.text))
  if begins and target.id:match("^eq") then text = pandoc.Inlines((target.name:gsub("^e", "E"))) end
  return pandoc.Link(text, href(target.page, target.id))
end

local function cited(cite)                              -- @thm-x; `@eq-x [@a; p. 3]` is read as one, and is two
  local first, rest, made = cite.citations[1], List(), List()
  local begins = first.id:match("^Eq%-")                -- at the beginning of a sentence, see read
  first.id = first.id:gsub("^Eq%-", "eq-")
  for i, c in ipairs(cite.citations) do                 -- what stands behind a key is printed as it is: “p. 3”
    if not labels[c.id] and #c.suffix > 0 then
      local comma = c.suffix[1].t == "Str" and c.suffix[1].text == ","
      c.suffix = List{pandoc.Str("\u{2060}")} .. List{table.unpack(c.suffix, comma and 3 or 1)}
    end
    if labels[c.id] and (i > 1 or c.mode ~= "AuthorInText") then complain("write @" .. c.id .. " without brackets") end
    if not labels[c.id] and not keys[c.id] then
      complain((NUMBERED[c.id:match("^%l+")] or c.id:match("^sec%-")) and "unknown label @" .. c.id
               or "@" .. c.id .. " is neither a label nor a key of references.bib")
    end
  end
  if not labels[first.id] then return cite end
  made:insert(reference(labels[first.id], begins))
  if #first.suffix > 0 then made:extend(List{pandoc.Str(" [")} .. first.suffix .. List{pandoc.Str("]")}) end
  rest:extend{table.unpack(cite.citations, 2)}
  if #rest > 0 then made:extend{pandoc.Space(), pandoc.Cite({}, rest)} end
  return made
end

local OF_BOOK = "only chapters and ../FILE of the repository can be linked"
local function link(a)
  local file, anchor = a.target:match("^([^#]*)#?(.*)$")
  anchor = anchor ~= "" and anchor or nil
  local function wrong(said) complain("link to " .. (file ~= "" and file or a.target) .. ": " .. said) end
  if a.target:match("^%a+:") then                       -- nbdev links names to the published site
    local own = not jupyter and file:sub(1, #work.url + 1) == work.url .. "/" and file:sub(#work.url + 2)
    local page = own and work.by_name[own:match("^(.*)%.html$")]
    if page then a.target = href(page, anchor and page.names[anchor]) end
  elseif file:match("^%.%./") then
    if not io.open(path.join{work.root, file:sub(4)}) then wrong(OF_BOOK) end
    a.target = work.files .. file:sub(4) .. (anchor and "#" .. anchor or "")
  elseif file ~= "" and not pages[file] then wrong(file:match("%.ipynb$") and "there is no such chapter" or OF_BOOK)
  else
    local page, target = pages[file] or current, labels[anchor or ""]
    if anchor and not target then complain("link to #" .. anchor .. ": there is no such label")
    elseif target and target.page ~= page then wrong("that label stands in " .. target.page.file) end
    a.target = href(page, anchor)
  end
  return a
end

-- what the page shows

local function set(names) local made = {}; for name in names:gmatch("%S+") do made[name] = true end; return made end
local RELATIONS = set([[= < > \le \leq \ge \geq \ne \neq \in \notin \subset \subseteq \to \mapsto \approx \equiv \sim
  \propto \iff \implies \Rightarrow \colon]])
local SIGNS = set([[+ - \otimes \oplus \cdot \times]])
local OPENING = set([[( [ \{ \lvert \lVert \langle \lfloor \lceil]])
local CLOSING = set([[) ] \} \rvert \rVert \rangle \rfloor \rceil]])
-- browsers break no line inside a formula: here before relations, after commas
local function pieces(tex)
  local found, piece, size, depth, held, at = List(), "", 0, 0, 0, 1
  if #tex < 24 or tex:match("\\begin") or tex:match("\\over%A") then return List{tex} end
  while at <= #tex do
    local token = tex:match("^\\%a+%s*", at) or tex:match("^\\.", at) or tex:match("^[^\\]", at)
    local mark = token:gsub("%s", "")
    held = held + ((mark == "{" or mark == "\\left") and 1 or (mark == "}" or mark == "\\right") and -1 or 0)
    depth = depth + (OPENING[mark] and 1 or CLOSING[mark] and -1 or 0)
    if held == 0 and depth == 0 and (RELATIONS[mark] and size >= 5 or SIGNS[mark] and size >= 8) then
      found:insert(piece)
      piece, size = "{}", 0
    end
    piece, at = piece .. token, at + #token
    if RELATIONS[mark] or mark ~= "" and not mark:match("^[\\{}_^]") or mark:match("^\\%a%a%a") then size = size + 1 end
    local pause = mark == "," or mark == "\\quad" or mark == "\\qquad"
    if held == 0 and pause and (depth == 0 and size >= 5 or depth == 1 and size >= 10) then
      found:insert(piece)
      piece, size = "", 0
    end
  end
  if size < 2 and #found > 0 then found[#found] = found[#found] .. piece else found:insert(piece) end
  return found
end

local function formula(m)
  if m.mathtype ~= "InlineMath" or jupyter then return nil end
  local made = List()
  for i, tex in ipairs(pieces(m.text)) do
    if i > 1 then made:insert(pandoc.RawInline("html", "<wbr>")) end
    made:insert(pandoc.Math("InlineMath", tex))
  end
  return made
end

local function equation(math, id)
  local target = id and labels[id]
  if jupyter then
    if target then math.text = math.text .. " \\tag{" .. target.number .. "}" end
    return pandoc.Para{math}
  end
  local number = target and List{pandoc.Span("(" .. target.number .. ")", {class="book-number"})} or List()
  return pandoc.Div({pandoc.Plain(List{math} .. number)}, {id=id or "", class=id and "math book-equation" or "math"})
end

local function paragraphs(all)                          -- $$ … $$ {#eq-x} stands between paragraphs
  local made = pandoc.Blocks{}
  for _, b in ipairs(all) do
    local para = (b.t == "Para" or b.t == "Plain") and b
    if para and para.content:find_if(function(x) return x.t == "Math" and x.mathtype == "DisplayMath" end) then
      local text, content = List(), para.content
      local function flush()
        while #text > 0 and text[#text].t == "SoftBreak" do text:remove() end
        if #text > 0 then made:insert(para.t == "Para" and pandoc.Para(text) or pandoc.Plain(text)) end
        text = List()
      end
      local i = 1
      while i <= #content do
        local x = content[i]
        if x.t == "Math" and x.mathtype == "DisplayMath" then
          local before, named = content[i - 1], content[i + 1] and content[i + 1].t == "Space" and content[i + 2]
          local id = named and named.t == "Str" and named.text:match("^{#(eq%-[%w-]+)}$")
          if before and before.t ~= "SoftBreak" then complain("$$ starts a line of its own") end
          if id then i = i + 2 end
          if content[i + 1] and content[i + 1].t ~= "SoftBreak" then
            complain("after the closing $$ only {#eq-name} may stand")
          end
          flush(); made:insert(equation(x, id))
        elseif #text > 0 or x.t ~= "SoftBreak" then text:insert(x) end
        i = i + 1
      end
      flush()
    else made:insert(b) end
  end
  return made
end

local function headed(blocks, head)                     -- "Theorem 2.3." or "Proof." before the first words
  local first = blocks[1]
  if first and first.t == "Para" and first.content[1].mathtype ~= "DisplayMath" then
    first.content = head .. List{pandoc.Space()} .. first.content
  else blocks:insert(1, pandoc.Para(head)) end
  return blocks
end

local function statement(div, title)                    -- in Jupyter the title is bold, too
  local id, name = div.identifier, labels[div.identifier].name
  local rest = title and List{pandoc.Str(" (")} .. title .. List{pandoc.Str(").")} or List()
  local bold = List{pandoc.Str(title and name or name .. ".")}
  local blocks = headed(div.content, jupyter and List{pandoc.Strong(bold .. rest)} or List{pandoc.Strong(bold)} .. rest)
  if jupyter then return List{pandoc.HorizontalRule()} .. blocks .. List{pandoc.HorizontalRule()} end
  return pandoc.Div(blocks, {id=id, class="book-statement book-" .. id:match("^%l+")})
end

local function folded(class, title, blocks)
  local text = pandoc.Plain(title)
  if jupyter then
    local said = pandoc.write(pandoc.Pandoc{text}, JUPYTER, {wrap_text="none"}):gsub("\n$", "")
    return List{raw("<details><summary>" .. said .. "</summary>")} .. blocks .. List{raw("</details>")}
  end
  return List{raw('<details class="' .. class .. '"><summary>'), text, raw("</summary>")} .. blocks
    .. List{raw("</details>")}
end

local function callout(div, title)
  local kind = div.classes[1]:match("callout%-(%l+)")
  local text = title or pandoc.Inlines((kind:gsub("^%l", string.upper)))
  if div.attributes.collapse then
    local said = stringify(text)
    if not current.answers and (current.exercise or said:match("^Answer") or said:match("^Solution")) then
      current.left_out = true
      return pandoc.Para{pandoc.Emph(work.left_out)}
    end
    return folded("callout " .. kind, text, div.content)
  end
  if jupyter then return (title and List{pandoc.Para{pandoc.Strong(text)}} or List()) .. div.content end
  return pandoc.Div(List{pandoc.Div({pandoc.Plain(text)}, {class="title"})} .. div.content, {class="callout " .. kind})
end

local structure = {traverse="topdown"}                  -- of a page, filled in below
function structure.Div(div)
  for i, b in ipairs(div.content) do                    -- text before `:::`
    if b.t == "Plain" then div.content[i] = pandoc.Para(b.content) end
  end
  local title = div.content[1] and div.content[1].t == "Header" and div.content:remove(1).content or nil
  if div.classes:includes("math") then return div, false end
  div.content = div.content:walk(structure)
  if labels[div.identifier] then return statement(div, title), false end
  if (div.classes[1] or ""):match("^callout%-%l+$") then return callout(div, title), false end
  if div.classes[1] ~= "proof" then return nil end      -- told already
  local blocks = headed(div.content, List{pandoc.Emph("Proof.")})
  return jupyter and blocks or pandoc.Div(blocks, {class="book-proof"}), false
end

local function caption(id, text)
  local target = labels[id]
  return target and List{pandoc.Str(target.name .. ": ")} .. text or text
end

function structure.Table(t)
  t.colspecs = List(t.colspecs):map(function(spec) return {spec[1], nil} end)      -- as wide as what stands in them
  local long = t.caption.long[1]
  local text = long and caption(t.identifier, long.content)
  if jupyter then
    t.caption.long, t.attr = {}, pandoc.Attr()
    return List{t} .. (text and List{pandoc.Para{pandoc.Emph(text)}} or List()), false
  end
  if text then t.caption.long = {pandoc.Plain(text)} end
  return pandoc.Div({t}, {class="table"}), false
end

local function slug(text)
  return (text:lower():gsub("’", ""):gsub("[^%w]+", "-"):gsub("^[-%d]+", ""):gsub("%-+$", ""))
end

function structure.Header(h)
  local text, above = stringify(h), current.exercise and h.level > current.exercise
  current.exercise = text:match("^Exercise:") and h.level or above and current.exercise or nil
  if jupyter then
    if h.level == 1 and current.chapter ~= "" then h.content:insert(1, pandoc.Str(current.chapter .. " ")) end
    h.identifier = ""
    return h, false
  end
  current.sections = current.sections or h.level == 2 and h.content[1].t ~= "Code"
  if h.identifier == "" then
    local n, name = 1, slug(text)
    while current.anchors[name] do n, name = n + 1, slug(text) .. "-" .. n end
    h.identifier = name
    current.anchors[name] = true
  end
  return h, false
end

local function resolved(blocks, text)
  blocks = blocks:walk{Cite=cited, Link=link, Math=formula}
  if not text or text:find("$$", 1, true) then blocks = blocks:walk{Blocks=paragraphs} end
  return blocks:walk(structure)
end

-- cells of code

local function output(out)
  if out.kind == "text" then return List{pandoc.CodeBlock(out.text)} end
  if out.kind == "html" then return List{raw(out.text)} end
  if out.kind == "markdown" then return resolved(parsed(out.text), out.text) end
  return List{pandoc.Plain{pandoc.Image({}, out.src, "", {alt=out.alt or ""})}}
end

local function code(cell)
  local made, shown = List(), List()
  local source = List{cell.code and pandoc.CodeBlock(cell.code, {class="python"})}
  local exported = cell.exported and " exported" or ""
  made:extend(#source > 0 and cell.fold and folded("code" .. exported, pandoc.Inlines(cell.fold), source) or source)
  for _, out in ipairs(cell.outputs) do shown:extend(output(out)) end
  if cell.caption then
    local text = resolved(pandoc.Blocks{pandoc.Plain(cell.caption)}, "")[1].content
    made:insert(pandoc.Figure(shown, {long={pandoc.Plain(caption(cell.label, text))}}, {id=cell.label or ""}))
  elseif #shown > 0 then made:insert(pandoc.Div(shown, {class="output"})) end
  local class = "cell" .. (cell.fold and "" or exported)
  return #made > 0 and List{pandoc.Div(made, {id=cell.anchor or "", class=class})} or made
end

local function documented(cell)                         -- a name of the library, as nbdev's show_doc describes it
  local id, head = cell.name:lower(), pandoc.Header(current.sections and 3 or 2, {pandoc.Code(cell.name)})
  local made = List(resolved(pandoc.Blocks{head}, ""))
  local link_to = pandoc.Para{pandoc.Link("source", cell.source, "", {class="api-source"})}
  local arguments = List{pandoc.CodeBlock(cell.signature, {class="python"})} .. resolved(parsed(cell.table), "")
  local body = List{cell.source ~= "" and link_to or nil} .. resolved(parsed(cell.doc), cell.doc)
    .. folded("arguments", pandoc.Inlines("Arguments"), arguments)
  if not current.anchors[id] then
    current.anchors[id] = true
    made:insert(raw('<span id="' .. id .. '"></span>'))
  end
  return made .. List{pandoc.Div(body, {class="book-api"})}
end

-- all pages: read, number, resolve, cite, write

work.by_name = {}
for _, page in ipairs(work.pages) do
  work.by_name[page.name], page.counts, page.names, page.anchors, current = page, {}, {}, {}, page
  for _, cell in ipairs(page.cells) do
    here = cell.where
    if cell.kind == "api" then page.names[cell.name:lower()] = cell.name:lower() else read(cell) end
  end
end

local function blocks_of(cell)
  if cell.kind == "markdown" then return resolved(cell.blocks:clone(), cell.text) end
  if cell.kind == "api" then return documented(cell) end
  if not jupyter then return code(cell) end
  local text = cell.caption and resolved(pandoc.Blocks{pandoc.Plain(cell.caption)}, "")[1].content
  return text and List{pandoc.Para{pandoc.Emph(caption(cell.label, text))}} or List()
end

local function shown(page)                              -- in Jupyter a cell with an answer twice, with it and without
  local made = List()
  current = page
  for _, cell in ipairs(page.cells) do
    local exercise = page.exercise
    here, page.answers = cell.where, true
    local blocks = blocks_of(cell)
    if jupyter then made:insert(pandoc.Div(blocks, {id=cell.id})) else made:extend(blocks) end
    if jupyter and cell.text and cell.text:find("collapse=", 1, true) then
      page.exercise, page.answers, page.left_out = exercise, false, false
      blocks = blocks_of(cell)
      if page.left_out then made:insert(pandoc.Div(blocks, {id=cell.id})) end
    end
  end
  return pandoc.Div(made, {id=page.name})
end

local all = List(work.pages):map(shown)
local function failed() if #errors > 0 then io.stderr:write(table.concat(errors, "\n") .. "\n"); os.exit(1) end end
failed()
if work.mode == "check" then os.exit(0) end

here = "citations"
local book = pandoc.Pandoc(all, {bibliography=work.bibliography, ["link-citations"]=true})
book = heeded(pandoc.utils.citeproc, book)
local references = book.blocks:remove()
book = book:walk{Link=function(a)
  if a.target:match("^#ref%-") then
    a.target = (jupyter and work.url .. "/" or "") .. "references.html" .. a.target
    return a
  end
end}

if jupyter then                                         -- for each cell its text, and without answers where it differs
  local texts = {}
  local function written(blocks)
    local text = "\n" .. pandoc.write(pandoc.Pandoc(blocks), JUPYTER, {wrap_text="none"})
    return text:gsub("\n%-%-%-+\n", "\n---\n"):sub(2)
  end
  for i, div in ipairs(book.blocks) do
    for _, cell in ipairs(div.content) do
      local key = work.pages[i].file .. "#" .. cell.identifier
      texts[key] = (texts[key] or List()) .. List{written(cell.content)}
    end
  end
  save(work.out, pandoc.json.encode(texts))
else
  local template = pandoc.template.compile(contents(work.template))
  for i, page in ipairs(work.pages) do
    here = page.file
    local body = page.name == "references" and List{references} or book.blocks[i].content
    local doc = pandoc.Pandoc(body, {title=page.title})
    local options = {template=template, variables=page.variables, table_of_contents=true, toc_depth=3,
                     html_math_method="mathml", wrap_text="none"}
    page.variables.anchor = not page.anchors[slug(page.title)] and slug(page.title) or nil
    save(path.join{work.out, page.name .. ".html"}, heeded(pandoc.write, doc, "html5", options))
  end
end
failed()
