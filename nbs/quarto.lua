-- For who renders the notebooks by Quarto, as `nbdev_docs` does. Quarto numbers within a page only; here statements,
-- equations, figures and tables get the numbers that tools/book.lua gives them, chapter by chapter, and references lead
-- to any chapter. It runs before Quarto's own filters, which cannot be switched off: labels move to empty spans, which
-- those leave alone. What is wrong with a label or reference tells `python tools/book.py --check`.
local List = pandoc.List
local NAMES = {thm="Theorem", lem="Lemma", cor="Corollary", prp="Proposition", def="Definition", exm="Example",
               exr="Exercise", rem="Remark", eq="equation", fig="Figure", tbl="Table"}
local folder, here = quarto.doc.input_file:match("^(.-)([^/\\]+)$")
local function chapter_of(file) return file:match("^0*(%d+%l?)_") end
local function contents(file)
  local f = assert(io.open(folder .. file))
  local text = f:read("a")
  f:close()
  return text
end

local labels = {}                                       -- of all notebooks, in the order in which they stand there
for _, file in ipairs(pandoc.system.list_directory(folder)) do
  local chapter, counts = chapter_of(file), {}
  for line in (file:match("^[^_.].*%.ipynb$") and contents(file) or ""):gmatch("[^\n]+") do
    for id in line:gsub("#| *label: *(fig%-[%w-]+)", "{#%1"):gmatch("{#(%l%l%l?%-[%w-]+)") do
      local kind, title = id:match("^%l+"), line:match("# ([^#\n]-) {#" .. id:gsub("%-", "%%-"))
      counts[kind] = (counts[kind] or 0) + 1
      local number = (chapter and chapter .. "." or "") .. counts[kind]
      local name = NAMES[kind] and NAMES[kind] .. " " .. (kind == "eq" and "(" .. number .. ")" or number)
        or (title or id):gsub("\\(.)", "%1")            -- of a section; JSON escapes
      labels[id] = {number=number, name=name, target=(file ~= here and file or "") .. "#" .. id}
    end
  end
end

local function anchor(id) return pandoc.Span({}, {id=id}) end

local function captioned(block, id, caption)            -- caption is a block; returns the block without its label
  if not (caption and labels[id]) then return nil end
  caption.content = List{pandoc.Str(labels[id].name .. ":"), pandoc.Space()} .. caption.content
  block.identifier = ""
  return List{pandoc.Plain{anchor(id)}, block}
end

local filter = {}
function filter.Div(div)
  local id = div.identifier
  if not labels[id] then return nil end
  if id:match("^fig") then return captioned(div, id, div.content[#div.content]) end
  local head, title = List{anchor(id), pandoc.Strong(labels[id].name)}, div.content[1]
  if title and title.t == "Header" then
    div.content:remove(1)
    head:extend(List{pandoc.Str(" (")} .. title.content .. List{pandoc.Str(")")})
  end
  head:extend{pandoc.Str("."), pandoc.Space()}
  local first = div.content[1]
  if first and first.t == "Para" and first.content[1].mathtype ~= "DisplayMath" then
    first.content = head .. first.content
  else div.content:insert(1, pandoc.Para(head)) end
  div.identifier, div.classes = "", {"book-statement", "book-" .. id:match("^%l+")}
  return div
end

function filter.Table(t)                                -- Quarto hands the label over as text of the caption
  local caption = t.caption.long[1]
  local last = caption and caption.content[#caption.content]
  local id = last and last.t == "Str" and last.text:match("^{#(tbl%-[%w-]+)}$") or t.identifier
  if last and id ~= t.identifier then caption.content:remove(); caption.content:remove() end
  return captioned(t, id, caption)
end

function filter.Inlines(all)
  local made = List()
  for i, x in ipairs(all) do
    local id = x.t == "Str" and x.text:match("^{#(eq%-[%w-]+)}$")
    local first = x.t == "Cite" and labels[x.citations[1].id] and x.citations[1]
    if id and labels[id] then                           -- $$ … $$ {#eq-x}
      made:remove()
      local math = made:remove()
      made:extend{anchor(id), pandoc.Math("DisplayMath", math.text .. " \\qquad(" .. labels[id].number .. ")")}
    elseif first then                                   -- @thm-x; `@eq-x [@a]` is read as one, and is two
      local said = all[i - 2] and all[i - 2].t == "Str" and all[i - 2].text or i > 1 and "" or "."
      local name = said:match("[.!?]$") and labels[first.id].name:gsub("^e", "E") or labels[first.id].name
      made:insert(pandoc.Link(name, labels[first.id].target))
      if #first.suffix > 0 then made:extend(List{pandoc.Str(" [")} .. first.suffix .. List{pandoc.Str("]")}) end
      if #x.citations > 1 then made:extend{pandoc.Space(), pandoc.Cite({}, {table.unpack(x.citations, 2)})} end
    else made:insert(x) end
  end
  return made
end

local repo = contents("_quarto.yml"):match("repo%-url: (%S+)") .. "/blob/main/"
function filter.Link(a)
  a.target = a.target:gsub("^%.%./", repo)
  return a
end

function Pandoc(doc)
  local chapter = chapter_of(here)
  if chapter and doc.meta.title then doc.meta.title:insert(1, pandoc.Str(chapter .. " ")) end
  return doc:walk(filter)
end
